"""The data pipeline on Spark: logs as a data source, a stream, a sink, and jobs over them.

Importing this imports neither pyspark nor pyarrow; what needs them is loaded when it is asked for.
"""
