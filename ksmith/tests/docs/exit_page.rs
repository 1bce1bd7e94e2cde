//! The page of exit codes, from their table.

use ksmith::exit::{CHECK, CODES, NamedExitCode, RUN};

use crate::generated::check;

const PAGE: &str = "docs/reference/exit-codes.md";

const HEAD: &str = "# Exit codes of commands\n\n\
    With `--json` an error has the name of its code. This page is generated: `KSMITH_WRITE=1 cargo test -p ksmith --test docs`.\n";

fn table(codes: &[NamedExitCode]) -> String {
    let row = |code: &NamedExitCode| format!("| {} | {} | {} |\n", code.number, code.name, code.meaning);
    format!("\n| code | name | meaning |\n|---|---|---|\n{}", codes.iter().map(row).collect::<String>())
}

#[test]
fn the_page_of_exit_codes_is_fresh() {
    let run = "\n## ksmith run\n\nIt exits with its program's code, or with 128 and the number of the signal that ended the program. Besides:\n";
    let doctor = "\n## ksmith doctor --check\n\nThese are the codes of Nagios' plugins.\n";
    check(PAGE, &format!("{HEAD}{}{run}{}{doctor}{}", table(&CODES), table(&RUN), table(&CHECK)));
}
