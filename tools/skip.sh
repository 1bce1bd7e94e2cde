# Sourced by checks that may skip. They say so as the tests in Rust do, and fail where continuous integration (CI=true) runs
# them as root.

may_skip() { [ "${CI:-}" != true ] || [ "$(id -u)" != 0 ]; }

# Ends the check NAME because THING is missing: `skip NAME THING`.
skip() {
    echo "make $1: SKIPPED, nothing was tested: there is no $2 here" >&2
    if may_skip; then exit 0; else exit 1; fi
}

# Fails if a test of Node skipped: `none_skipped NAME`, where target/NAME.log has the tests' output.
none_skipped() {
    if ! grep -q '# SKIP' "target/$1.log" || may_skip; then return 0; fi
    echo "make $1: no test may skip here" >&2
    return 1
}
