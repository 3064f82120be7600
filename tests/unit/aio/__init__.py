"""Tests of the asyncio interface."""
