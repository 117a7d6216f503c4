"""What the connector is compared with: the limit, and the way of its ancestor."""
