"""kafkalog: Apache Kafka's log as an embedded storage engine."""
