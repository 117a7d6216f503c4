"""Airbyte's behavioural scenarios for destinations: the two lists that certified destinations are held against.

Every name is either that of a test here (in snake case), or stands beside the reason why it does not apply.
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
"""BasicFunctionalityIntegrationTest of the bulk CDK: scenario → why it does not apply; empty where it does."""

LEGACY_ACCEPTANCE: Mapping[str, str] = {
    "testGetSpec": "",
    "testCheckConnection": "",
    "testCheckConnectionInvalidCredentials": "",
    "testSync": "",
    "testSyncWithLargeRecordBatch": "",
    "testSecondSync": "",
    "testLineBreakCharacters": "",
    "testIncrementalSync": "",
    "testIncrementalDedupeSync": "",
    "testSyncUsesAirbyteStreamNamespaceIfNotNull": "",
    "testSyncWriteSameTableNameDifferentNamespace": "",
    "testSyncNotFailsWithNewFields": "",
    "testAirbyteFields": "",
    "testAirbyteTimeTypes": "",
    "testProblematicTypes": "",
    "testStressPerformance": "benchmarks",
    "testEntrypointEnvVar": "image",
    "specNormalizationValueShouldBeCorrect": "normalization",
    "specDBTValueShouldBeCorrect": "normalization",
    "testCustomDbtTransformations": "normalization",
}
"""DestinationAcceptanceTest of the older Java CDK, in the same form."""

REASONS: Mapping[str, str] = {
    "sockets": "Messages overtake one another only on several sockets; this connector reads standard input.",
    "benchmarks": "Throughput is measured by `make bench`, on far more records, and not asserted in a test.",
    "image": "About the image, not about the protocol; a test of the repository compares the Dockerfile with it.",
    "normalization": "Airbyte has retired normalization and dbt; the spec says that neither is supported.",
}


def function_name(scenario: str) -> str:
    """Return the name of the test: `testCDCStateTypes` → `test_cdc_state_types`."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", scenario).lower()
    return words if words.startswith("test_") else f"test_{words}"
