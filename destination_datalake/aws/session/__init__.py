"""What the botocore session of an `AwsAccess` has: a role that it assumes, and hooks for each request.

Hooks of the session, so that clients that libraries make from it have them too.
"""
