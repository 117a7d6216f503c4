"""Airbyte's basic scenarios, as the conformance suite plays them, through each door."""

from integration_tests.conformance.airbyte.test_basic_functionality import (
    test_basic_write,
    test_cdc_state_types,
    test_funky_characters,
    test_many_streams_completion,
    test_mid_sync_checkpointing_stream_state,
    test_namespaces,
    test_no_data,
    test_state_message_before_records,
    test_stream_state_types,
)

__all__ = [
    "test_basic_write",
    "test_cdc_state_types",
    "test_funky_characters",
    "test_many_streams_completion",
    "test_mid_sync_checkpointing_stream_state",
    "test_namespaces",
    "test_no_data",
    "test_state_message_before_records",
    "test_stream_state_types",
]
