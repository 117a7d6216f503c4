"""KMS keys: that they exist and can be used, and their policies."""

from typing import Any

from integration_tests.aws.requests.needs import key_arn


def find_key(named: str, region: str, account: str) -> Any:
    """Return moto's key of this id, alias or ARN, or nothing; an ARN's region and account count."""
    from moto.kms.models import kms_backends

    _, _, _, region, account, name = key_arn(named, region, account).split(":", 5)
    if region not in kms_backends[account]:
        return None
    backend = kms_backends[account][region]
    kind, _, key_id = name.partition("/")
    if kind == "alias":
        key_id = backend.get_key_id_from_alias(name) or ""
    return backend.keys.get(key_id)


def is_of_key(resource: str) -> bool:
    """Tell whether an ARN is a KMS key's, or an alias's."""
    return resource.startswith("arn:aws:kms:")
