"""What calls came to, by tenant and hour: counted in replicas, kept in a database."""
