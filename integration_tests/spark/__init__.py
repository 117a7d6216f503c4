"""The engine alone: Spark without a sync."""
