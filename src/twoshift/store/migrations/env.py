"""Alembic's way in: the database is given by the program, never by a file."""

from __future__ import annotations

from alembic import context

_LOCK = 7_746_872_043  # a number of our own among PostgreSQL's advisory locks

with context.config.attributes["engine"].begin() as connection:
    if connection.dialect.name == "postgresql":  # two servers that start at once make the tables one after the other
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
    context.configure(connection=connection, transactional_ddl=True)
    with context.begin_transaction():
        context.run_migrations()
