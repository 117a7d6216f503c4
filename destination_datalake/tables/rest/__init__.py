"""Tables in a catalog that speaks Iceberg's REST protocol."""
