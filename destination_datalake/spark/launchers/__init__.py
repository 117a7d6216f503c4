"""Where Spark Connect's servers come from: one that is there already, or a session of an AWS service for each sync."""
