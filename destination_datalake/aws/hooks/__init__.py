"""What botocore does for each request of a session's clients: hooks that libraries' own clients have too."""
