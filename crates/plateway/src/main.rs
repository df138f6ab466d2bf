//! The program: all of it is in the library beside, so that fuzz targets reach it.

fn main() -> miette::Result<()> {
    plateway::main()
}
