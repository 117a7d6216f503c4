"""The Airbyte protocol: input messages, and output of states and logs. Does not import AWS clients or Spark."""
