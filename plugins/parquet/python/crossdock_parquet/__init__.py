"""The Crossdock plugin `parquet`. Sessions find the library in this folder by the entry point of the package."""
