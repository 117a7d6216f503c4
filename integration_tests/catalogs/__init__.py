"""A catalog as Iceberg's REST specification describes it, on the loopback interface: strict, and as bad as a test asks.

Names in backquotes are those of `open-api/rest-catalog-open-api.yaml` in apache/iceberg.
"""
