"""What a caller is to Lake Formation: an administrator, a holder of permissions, or one of everybody.

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
    """A caller, by the ARN of user or role, in a catalog."""

    lake: Lake
    catalog: str
    principal: str

    @property
    def administers(self) -> bool:
        """Whether the data lake settings name the caller."""
        admins = self.lake.settings[self.catalog].get("DataLakeAdmins") or ()
        return any(admin["DataLakePrincipalIdentifier"] == self.principal for admin in admins)

    def permissions(self, resource: Resource) -> frozenset[str]:
        """Return what the caller may do with a resource, by permissions of its own or of everybody.

        ALL for IAM_ALLOWED_PRINCIPALS leaves the decision to IAM; it does not count for who opted in.
        """
        principals = {self.principal, ALL_OF_IAM, f"{self.catalog}:IAMPrincipals"}
        if not self._opted_in(resource):
            principals.add(EVERYBODY)
        return permissions_on(self.lake, principals, resource)

    def grantable(self, resource: Resource) -> frozenset[str]:
        """Return which of its own permissions the caller may pass on."""
        return permissions_on(self.lake, {self.principal}, resource, grantable=True)

    def sees_table(self, table: resources.Table) -> bool:
        """Tell whether the caller may read a table's entry: any permission will do, also on one of its columns."""
        if self.administers or self.permissions(table):
            return True
        return any(
            (held.catalog, held.database, held.table) == (table.catalog, table.database, table.name)
            for principal, held in self.lake.grants
            if principal == self.principal and isinstance(held, resources.Column | resources.Columns)
        )

    def sees_database(self, database: resources.Database) -> bool:
        """Tell whether the caller may read a database's entry: it holds something on it, or on a table in it."""
        if self.administers or self.permissions(database):
            return True
        return any(
            (held.catalog, held.database) == (database.catalog, database.name)
            for principal, held in self.lake.grants
            if principal == self.principal and isinstance(held, resources.Table | resources.Column | resources.Columns)
        )

    def may_point_to(self, location: str, database: str | None) -> bool:
        """Tell whether the caller may let the catalog point to an S3 URI.

        A registered location takes DATA_LOCATION_ACCESS, in hybrid access mode too; who may create tables in a database
        that has a location has it implicitly for what is below:
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
