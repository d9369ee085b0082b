"""The one package that imports pyarrow: text and Parquet into columns, values into counts, and files of both."""
