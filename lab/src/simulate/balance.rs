//! The balance policies that fleets are simulated under.

use std::path::Path;

use ksmith_core::balance::BalanceConfig;
use ksmith_service::config::Config;

use crate::competitor::NO_KSM;

/// A balance policy by its name on the command line.
#[derive(Debug, Clone, PartialEq)]
pub struct SimulatedBalance {
    /// The name: `none`, a policy, or `config:FILE`.
    pub name: String,
    /// The settings of the policy. `None`: guests keep what they were started with.
    pub config: Option<BalanceConfig>,
}

/// An error of looking up a balance policy by its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownBalance {
    /// No policy has this name.
    #[error("there is no balance policy {0:?}; there are: none, no-swap, squeeze, config:FILE")]
    Name(String),
    /// The configuration file can't be read or is refused.
    #[error("{0}")]
    Config(String),
}

impl SimulatedBalance {
    /// Returns the balance policy of this name.
    ///
    /// # Errors
    /// There is none of this name, or its configuration file can't be read or is refused.
    pub fn parse(name: &str) -> Result<Self, UnknownBalance> {
        let config = match (name, name.strip_prefix("config:")) {
            (NO_KSM, _) => None,
            (_, Some(file)) => {
                let config = Config::load(Some(Path::new(file)));
                Some(config.map_err(|why| UnknownBalance::Config(why.to_string()))?.balance)
            }
            _ => {
                let table = toml::Table::from_iter([("policy".to_owned(), name.into())]);
                let unknown = |_| UnknownBalance::Name(name.chars().take(60).collect());
                Some(table.try_into().map_err(unknown)?)
            }
        };
        Ok(Self { name: name.to_owned(), config })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ksmith_core::balance::BalanceKind;

    #[test]
    fn names_are_those_of_the_configuration() {
        assert_eq!(SimulatedBalance::parse("none").unwrap().config, None);
        assert_eq!(SimulatedBalance::parse("squeeze").unwrap().config.unwrap().policy, BalanceKind::Squeeze);
        assert_eq!(SimulatedBalance::parse("no-swap").unwrap().config.unwrap(), BalanceConfig::default());
        let error = SimulatedBalance::parse("swap").unwrap_err().to_string();
        assert!(error.contains("\"swap\"") && error.contains("squeeze"), "{error}");
        assert!(SimulatedBalance::parse("config:/no/such/file").unwrap_err().to_string().contains("/no/such/file"));
    }
}
