//! The program: all of it is in the library beside, so that fuzz targets reach it.

fn main() -> std::process::ExitCode {
    plateway::main()
}
