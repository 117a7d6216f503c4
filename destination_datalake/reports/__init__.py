"""Sync reports. Each sync writes a report to S3. The commands `history`, `health` and `report` read these reports."""
