"""Alembic's way in: the database is given by the program, never by a file."""

from __future__ import annotations

from alembic import context

with context.config.attributes["engine"].begin() as connection:
    context.configure(connection=connection, transactional_ddl=True)
    with context.begin_transaction():
        context.run_migrations()
