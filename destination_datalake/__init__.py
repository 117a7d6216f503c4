"""An Airbyte destination that writes records to Iceberg and Hive tables in an AWS data lake."""
