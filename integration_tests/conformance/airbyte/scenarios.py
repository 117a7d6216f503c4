"""Airbyte's behavioural scenarios for destinations: the two lists that certified destinations are held against.

Every name is either that of a test here (in snake case), or stands beside the test that plays it, or beside the reason
why none here does.
"""

import re
from collections.abc import Mapping

BASIC_FUNCTIONALITY: Mapping[str, str] = {
    "testBasicWrite": "",
    "testMidSyncCheckpointingStreamState": "",
    "testNamespaces": "",
    "testFunkyCharacters": "",
    "testFunkyCharactersDedup": "",
    "testTruncateRefresh": "",
    "testTruncateRefreshChangeSyncMode": "",
    "testInterruptedTruncateWithPriorData": "",
    "testInterruptedTruncateWithoutPriorData": "",
    "resumeAfterCancelledTruncate": "",
    "testAppend": "",
    "testAppendSchemaEvolution": "",
    "testAppendJsonSchemaEvolution": "",
    "testOverwriteSchemaEvolution": "",
    "testDedup": "",
    "testDedupWithStringKey": "",
    "testDedupNoCursor": "",
    "testDedupChangeCursor": "",
    "testDedupChangePk": "",
    "testManyStreamsCompletion": "",
    "testBasicTypes": "",
    "testNumericTypes": "",
    "testContainerTypes": "",
    "testUnknownTypes": "",
    "testUnions": "",
    "testCoerceLegacyUnions": "",
    "testNoColumns": "",
    "testNoData": "",
    "testTruncateRefreshNoData": "",
    "testClear": "",
    "testOutOfOrderStateMessages": "sockets",
    "testStateMessageBeforeRecords": "",
    "testStreamStateTypes": "",
    "testCDCStateTypes": "",
}
"""BasicFunctionalityIntegrationTest of the bulk CDK: scenario → why none here plays it; empty where one does."""

LEGACY_ACCEPTANCE: Mapping[str, str] = {
    "testGetSpec": "command",
    "testCheckConnection": "command",
    "testCheckConnectionInvalidCredentials": "command",
    "testSync": "test_cdc_state_types",
    "testSyncWithLargeRecordBatch": "",
    "testSecondSync": "test_truncate_refresh_change_sync_mode",
    "testLineBreakCharacters": "test_funky_characters",
    "testIncrementalSync": "test_append",
    "testIncrementalDedupeSync": "",
    "testSyncUsesAirbyteStreamNamespaceIfNotNull": "test_namespaces",
    "testSyncWriteSameTableNameDifferentNamespace": "test_namespaces",
    "testSyncNotFailsWithNewFields": "test_append_schema_evolution",
    "testAirbyteFields": "test_the_source_s_changes_come_before_ours",
    "testAirbyteTimeTypes": "",
    "testProblematicTypes": "",
    "testStressPerformance": "benchmarks",
    "testEntrypointEnvVar": "image",
    "specNormalizationValueShouldBeCorrect": "normalization",
    "specDBTValueShouldBeCorrect": "normalization",
    "testCustomDbtTransformations": "normalization",
}
"""DestinationAcceptanceTest of the older Java CDK, in the same form; or scenario → the test that plays it."""

REASONS: Mapping[str, str] = {
    "command": "About a command that does not sync; the tests of the command line assert it.",
    "sockets": "Messages overtake one another only on several sockets; this connector reads standard input.",
    "benchmarks": "Throughput is measured by `make bench`, on far more records, and not asserted in a test.",
    "image": "About the image, not about the protocol; a test of the repository compares the Dockerfile with it.",
    "normalization": "Airbyte has retired normalization and dbt; the spec says that neither is supported.",
}


def function_name(scenario: str) -> str:
    """Return the name of the test: `testCDCStateTypes` → `test_cdc_state_types`."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", scenario).lower()
    return words if words.startswith("test_") else f"test_{words}"


def played_by(scenario: str, entry: str) -> str:
    """Return the name of the test that plays a scenario with this entry."""
    return entry if entry.startswith("test_") else function_name(scenario)
