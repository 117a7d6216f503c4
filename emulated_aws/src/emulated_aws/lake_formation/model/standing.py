"""The permissions of a caller in Lake Formation, as an administrator, by grants, or as any IAM principal.

https://docs.aws.amazon.com/lake-formation/latest/dg/implicit-permissions.html
"""

from dataclasses import dataclass

from emulated_aws.lake_formation.model import resources
from emulated_aws.lake_formation.model.effective import permissions_on
from emulated_aws.lake_formation.model.resources import Resource
from emulated_aws.lake_formation.model.state import EVERYBODY, Lake

ALL_OF_IAM = "ALLIAMPrincipals"


@dataclass(frozen=True)
class Standing:
    """The permissions of one caller in a catalog. `principal` is the ARN of the caller's user or role."""

    lake: Lake
    catalog: str
    principal: str

    @property
    def administers(self) -> bool:
        """Whether the data lake settings list the caller as an administrator."""
        admins = self.lake.settings[self.catalog].get("DataLakeAdmins") or ()
        return any(admin["DataLakePrincipalIdentifier"] == self.principal for admin in admins)

    def permissions(self, resource: Resource) -> frozenset[str]:
        """Return the permissions of the caller on a resource, including permissions that all principals have.

        If the caller has opted in, permissions of the group IAM_ALLOWED_PRINCIPALS, which leave access control to IAM,
        do not count.
        """
        principals = {self.principal, ALL_OF_IAM, f"{self.catalog}:IAMPrincipals"}
        if not self._opted_in(resource):
            principals.add(EVERYBODY)
        return permissions_on(self.lake, principals, resource)

    def grantable(self, resource: Resource) -> frozenset[str]:
        """Return the permissions on a resource that the caller may grant to others."""
        return permissions_on(self.lake, {self.principal}, resource, grantable=True)

    def sees_table(self, table: resources.Table) -> bool:
        """Return whether the caller may read a table's entry.

        This requires any permission on the table or on one of its columns.
        """
        if self.administers or self.permissions(table):
            return True
        return any(
            (held.catalog, held.database, held.table) == (table.catalog, table.database, table.name)
            for principal, held in self.lake.grants
            if principal == self.principal and isinstance(held, resources.Column | resources.Columns)
        )

    def sees_database(self, database: resources.Database) -> bool:
        """Return whether the caller may read a database's entry.

        This requires any permission on the database or on a table in the database.
        """
        if self.administers or self.permissions(database):
            return True
        return any(
            (held.catalog, held.database) == (database.catalog, database.name)
            for principal, held in self.lake.grants
            if principal == self.principal and isinstance(held, resources.Table | resources.Column | resources.Columns)
        )

    def may_point_to(self, location: str, database: str | None) -> bool:
        """Return whether the caller may create a catalog entry with this S3 location.

        A registered location requires DATA_LOCATION_ACCESS, even with hybrid access. A caller that may create tables in
        a database has this permission implicitly below the location of the database:
        https://docs.aws.amazon.com/lake-formation/latest/dg/access-control-underlying-data.html
        """
        arn = resources.location_arn(location)
        registered = any(arn == known or arn.startswith(f"{known}/") for known in self.lake.locations)
        if not registered or self.administers:
            return True
        if database is not None and arn.startswith(f"{resources.location_arn(database)}/"):
            return True
        return "DATA_LOCATION_ACCESS" in self.permissions(resources.DataLocation(self.catalog, arn))

    def _opted_in(self, resource: Resource) -> bool:
        match resource:
            case (
                resources.Table(catalog, name, _)
                | resources.Columns(catalog, name, _)
                | resources.Column(catalog, name, _, _)
            ):
                wider = {resources.Database(catalog, name), resources.Table(catalog, name, None), resource}
            case _:
                wider = {resource}
        return any((self.principal, scope) in self.lake.opt_ins for scope in wider)
