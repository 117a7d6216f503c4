"""What fails on clusters: executors, hosts, sessions, credentials, and clusters that cannot be used at all."""
