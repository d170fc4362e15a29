"""Many servers over one PostgreSQL database: their faults, and how fast they are."""
