"""Airbyte destination that lands any sync in an AWS data lake."""
