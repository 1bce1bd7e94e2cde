//! `/etc/ksmtuned.conf`: a shell script by nature, of which only assignments are read.

use std::num::NonZeroU32;
use std::str::FromStr;

use super::KsmtunedConfig;

/// An error in `/etc/ksmtuned.conf`, with its line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct BadConf {
    /// The number of the line, from 1.
    pub line: usize,
    /// The problem, and its remedy.
    pub problem: ConfProblem,
}

/// A word or a line that is no assignment of a known setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfProblem {
    /// A command.
    #[error("{0:?} is a command, and only assignments are read: NAME=VALUE, without spaces")]
    Command(String),
    /// An unknown name.
    #[error("ksmtuned has no setting {0:?}")]
    Unknown(String),
    /// A value that the original could not compute with: the name, what it takes, and the value.
    #[error("{0} takes {1} as a plain decimal number, not {2:?}")]
    Value(String, &'static str, String),
    /// A backslash at the end.
    #[error("a continued line is not read: join it")]
    GoesOn,
    /// A letter that has a shell execute something.
    #[error("{0} needs a shell, and none runs here: write the value itself")]
    Executes(char),
    /// A quote without its end.
    #[error("{0} is opened and not closed on this line")]
    Open(char),
}

/// Settings that steer the original as a program and have no meaning here.
const IGNORED: [&str; 3] = ["LOGFILE", "DEBUG", "PIDFILE"];

/// Reads assignments, the last of a name counting.
pub(super) fn parse(text: &str) -> Result<KsmtunedConfig, BadConf> {
    let mut config = KsmtunedConfig::default();
    for (index, line) in text.lines().enumerate() {
        let at = |problem| BadConf { line: index + 1, problem };
        for word in words(line).map_err(at)? {
            match word.split_once('=') {
                _ if word == "export" => {}
                Some((name, value)) => set(&mut config, name, value).map_err(at)?,
                None => return Err(at(ConfProblem::Command(cut(&word)))),
            }
        }
    }
    Ok(config)
}

fn set(config: &mut KsmtunedConfig, name: &str, value: &str) -> Result<(), ConfProblem> {
    let default = KsmtunedConfig::default();
    match name {
        "KSM_MONITOR_INTERVAL" => {
            config.monitor_interval_seconds =
                number::<NonZeroU32>(name, value, "whole seconds, 1 or more", default.monitor_interval_seconds)?;
        }
        "KSM_NPAGES_BOOST" => config.npages_boost = number(name, value, PAGES_MORE, default.npages_boost)?,
        "KSM_NPAGES_DECAY" => config.npages_decay = number(name, value, PAGES_MORE, default.npages_decay)?,
        "KSM_NPAGES_MIN" => config.npages_min = number(name, value, PAGES, default.npages_min)?,
        "KSM_NPAGES_MAX" => config.npages_max = number(name, value, PAGES, default.npages_max)?,
        "KSM_SLEEP_MSEC" => config.sleep_msec = number(name, value, "milliseconds", default.sleep_msec)?,
        "KSM_THRES_COEF" => config.thres_coef = number(name, value, "per cent", default.thres_coef)?,
        "KSM_THRES_CONST" => config.thres_const = number(name, value, "KiB", default.thres_const)?,
        _ if IGNORED.contains(&name) => {}
        _ => return Err(ConfProblem::Unknown(cut(name))),
    }
    Ok(())
}

const PAGES: &str = "a number of pages";
const PAGES_MORE: &str = "a number of pages, negative for fewer";

/// A value that the original could compute with. Nothing at all stands for its default, as there.
fn number<T: FromStr>(name: &str, value: &str, what: &'static str, default: T) -> Result<T, ConfProblem> {
    if value.is_empty() {
        return Ok(default);
    }
    let digits = value.strip_prefix('-').unwrap_or(value);
    // The shell computes 010 as 8, 08 as an error and 0x10 as 16, in some places and not in others.
    let decimal = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    decimal
        .then(|| value.parse().ok())
        .flatten()
        .ok_or_else(|| ConfProblem::Value(name.to_owned(), what, cut(value)))
}

fn cut(text: &str) -> String {
    text.chars().take(60).collect()
}

/// The words of one line as a shell makes them: quotes and backslashes taken away, comments left out.
fn words(line: &str) -> Result<Vec<String>, ConfProblem> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' | ';' => words.extend(word.take()),
            '#' if word.is_none() => break,
            '\'' => quoted(&mut chars, c, word.get_or_insert_default())?,
            '"' => quoted(&mut chars, c, word.get_or_insert_default())?,
            '\\' => word.get_or_insert_default().push(chars.next().ok_or(ConfProblem::GoesOn)?),
            '$' | '`' | '&' | '|' | '<' | '>' | '(' | ')' => return Err(ConfProblem::Executes(c)),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Reads up to the closing quote.
fn quoted(chars: &mut std::str::Chars<'_>, quote: char, word: &mut String) -> Result<(), ConfProblem> {
    while let Some(c) = chars.next() {
        match c {
            _ if c == quote => return Ok(()),
            '$' | '`' if quote == '"' => return Err(ConfProblem::Executes(c)),
            '\\' if quote == '"' => match chars.next() {
                Some(escaped @ ('$' | '`' | '"' | '\\')) => word.push(escaped),
                other => {
                    word.push('\\');
                    word.extend(other);
                }
            },
            _ => word.push(c),
        }
    }
    Err(ConfProblem::Open(quote))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_file_of_comments_gives_the_defaults() {
        assert_eq!(parse("# KSM_MONITOR_INTERVAL=60\n\n   # DEBUG=1\n").unwrap(), KsmtunedConfig::default());
    }

    #[test]
    fn assignments_are_read_as_a_shell_reads_them() {
        let text = "export KSM_THRES_COEF=30 # per cent\n\
                    \tKSM_SLEEP_MSEC='100'; KSM_NPAGES_MAX=\"5000\"\r\n\
                    KSM_NPAGES_DECAY=\\-5\"0\" KSM_MONITOR_INTERVAL=10\n\
                    export KSM_THRES_CONST=4096\n\
                    KSM_NPAGES_MIN=\n\
                    KSM_NPAGES_BOOST=1\nKSM_NPAGES_BOOST=''\n\
                    LOGFILE=/var/log/ksmtuned\nDEBUG=1\n";
        let expected = KsmtunedConfig {
            monitor_interval_seconds: NonZeroU32::new(10).unwrap(),
            npages_max: 5000,
            sleep_msec: 100,
            thres_coef: 30,
            thres_const: 4096,
            ..KsmtunedConfig::default()
        };
        assert_eq!(parse(text).unwrap(), expected);
    }

    #[test]
    fn what_is_not_a_setting_is_refused_with_its_line() {
        for (bad, why) in [
            ("KSM_NPAGES_BOST=3", "line 2: ksmtuned has no setting \"KSM_NPAGES_BOST\""),
            ("KSM_THRES_COEF = 20", "line 2: \"KSM_THRES_COEF\" is a command, and only assignments are read"),
            ("KSM_THRES_COEF=$(nproc)", "line 2: $ needs a shell"),
            ("KSM_THRES_COEF=\"`nproc`\"", "line 2: ` needs a shell"),
            ("KSM_THRES_COEF=20 && reboot", "line 2: & needs a shell"),
            ("KSM_THRES_COEF=\"20", "line 2: \" is opened and not closed"),
            ("KSM_THRES_COEF=2\\", "line 2: a continued line is not read"),
            ("KSM_THRES_COEF=-1", "line 2: KSM_THRES_COEF takes per cent as a plain decimal number, not \"-1\""),
            ("KSM_NPAGES_MAX=1k", "not \"1k\""),
            ("KSM_NPAGES_MAX=010", "not \"010\""),
            ("KSM_NPAGES_MAX=+10", "not \"+10\""),
            ("KSM_NPAGES_MAX=4294967296", "takes a number of pages"),
            ("KSM_MONITOR_INTERVAL=0", "takes whole seconds, 1 or more"),
            (". /etc/default/ksm", "line 2: \".\" is a command"),
        ] {
            let error = parse(&format!("DEBUG=1\n{bad}\n")).unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*|([A-Z_=#'\"\\\\$;\\-0-9 \\n]|KSM_NPAGES_MAX=|export ){0,40}") {
            let _ = parse(&text);
        }

        #[test]
        fn numbers_survive_any_quoting(boost in any::<i32>(), quote in 0_usize..3) {
            let quote = ["", "'", "\""][quote];
            let text = format!("KSM_NPAGES_BOOST={quote}{boost}{quote}");
            prop_assert_eq!(parse(&text).unwrap().npages_boost, boost);
        }
    }
}
