"""The step about the bucket's lifecycle rules: is the archive kept for as long as `raw_archive.retention_days` says?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from destination_datalake.archive.objects import ARCHIVE_FOLDER
from destination_datalake.aws.address import S3Address
from destination_datalake.check.step import Findings, Trial
from destination_datalake.errors import quoted

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import LifecycleRuleOutputTypeDef

_SEE = "docs/permissions.md has a rule for it"


def try_lifecycle(trial: Trial, findings: Findings) -> None:
    """Warn where the bucket's rules and the option disagree. Syncs need no rule, so that nothing fails the check."""
    bucket = trial.config.bucket_name
    s3 = trial.access.client("s3")
    rules: Sequence[LifecycleRuleOutputTypeDef] = ()
    with findings.attempt("read the lifecycle rules of", f"s3://{bucket}/") as reading:
        try:
            rules = s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
        except s3.exceptions.ClientError as error:
            if error.response["Error"]["Code"] != "NoSuchLifecycleConfiguration":
                raise
    if not reading.succeeded:
        findings.warn(f"{findings.failures.pop().message} Without it, check cannot tell how long the archive is kept.")
        return
    folder = S3Address(bucket, trial.config.key(ARCHIVE_FOLDER, ""))
    for sentence in deviations(rules, folder, trial.config.raw_archive.retention_days):
        findings.warn(sentence)


@dataclass(frozen=True, slots=True)
class _Expiry:
    """A rule by which S3 deletes objects of a folder, all of them or some.

    `days` is the age at which it does. A rule with a date deletes objects of any age, from then on: its `days` are 0.
    https://docs.aws.amazon.com/AmazonS3/latest/userguide/intro-lifecycle-rules.html
    """

    rule: str
    days: int
    when: str
    is_of_all: bool


def _expiries(rules: Iterable[LifecycleRuleOutputTypeDef], folder: str) -> Iterator[_Expiry]:
    """Yield what the rules delete of a folder."""
    for rule in rules:
        expiration, chosen = rule.get("Expiration", {}), rule.get("Filter", {})
        # A filter has one criterion, or several in `And`; rules of an older form have the prefix outside.
        criteria = {"Prefix": rule.get("Prefix", ""), **chosen, **chosen.get("And", {})}
        prefix = str(criteria["Prefix"])
        above = folder.startswith(prefix)
        if rule["Status"] != "Enabled" or not (above or prefix.startswith(folder)):
            continue
        is_of_all = above and criteria.keys() <= {"Prefix", "And"}
        name = quoted(rule.get("ID", ""))
        if "Days" in expiration:
            yield _Expiry(name, expiration["Days"], f"{expiration['Days']} days after it was written", is_of_all)
        elif "Date" in expiration:
            yield _Expiry(name, 0, f"of any age from {expiration['Date']:%Y-%m-%d} on", is_of_all)


def deviations(rules: Iterable[LifecycleRuleOutputTypeDef], folder: S3Address, days: int) -> Iterator[str]:
    """Yield a sentence for each way in which rules keep objects of a folder shorter or longer than these days.

    The folder's key has a slash at its end.
    """
    expiries = list(_expiries(rules, folder.key))
    for each in expiries:
        if each.days < days:
            yield (
                f"Lifecycle rule {each.rule} deletes {'what' if each.is_of_all else 'some of what'} is in {folder} "
                f"{each.when}, and raw_archive.retention_days is {days}: tables cannot be made again from what is "
                "gone. Change the rule, or retention_days."
            )
    of_all = [each for each in expiries if each.is_of_all]
    if not of_all:
        yield (
            f"No lifecycle rule of the bucket deletes all that is in {folder}, so that it is kept for good, and "
            f"raw_archive.retention_days is {days}. Add a rule: {_SEE}."
        )
    # Where rules overlap, S3 deletes at the earliest (S3 User Guide: How Amazon S3 handles conflicts in lifecycle
    # configurations).
    elif (first := min(of_all, key=lambda each: each.days)).days > days:
        yield (
            f"Lifecycle rule {first.rule} deletes what is in {folder} {first.when}, and raw_archive.retention_days is "
            f"{days}: it is kept longer than that. Change the rule, or retention_days."
        )
