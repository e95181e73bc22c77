"""Work on the data of tables: Spark jobs, and what they run on."""
