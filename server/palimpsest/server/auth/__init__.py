"""Who is calling, and what their access token opens."""
