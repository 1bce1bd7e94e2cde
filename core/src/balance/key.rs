//! Tables of the configuration, declared with the meaning and the default of each key in one place.

/// A key of the configuration, as the packaged file lists it.
#[derive(Debug, Clone, Copy)]
pub struct ConfigKey {
    /// The name.
    pub name: &'static str,
    /// The meaning: the field's documentation.
    pub meaning: &'static str,
}

/// Declares a table of the configuration: a struct, its defaults, and its `KEYS`.
///
/// A field is a key with its documentation, its range (`deserialize_with`) and its default.
///
/// The documentation stands behind the key in `packaging/ksmith.toml`, in ksmith.toml(5) and in
/// `docs/reference/configuration.md`. `KSMITH_WRITE=1 cargo test -p ksmith --test docs` writes the first.
macro_rules! config_table {
    (
        $(#[$about:meta])*
        pub struct $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $(#[serde($($serde:tt)*)])*
                pub $key:ident: $type:ty = $default:expr,
            )*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, serde::Deserialize, serde::Serialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $(
                $(#[doc = $doc])+
                $(#[serde($($serde)*)])*
                pub $key: $type,
            )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }

        impl $name {
            /// The keys of the table, in the order of the packaged file.
            pub const KEYS: &'static [$crate::balance::ConfigKey] = &[$($crate::balance::ConfigKey {
                name: stringify!($key),
                meaning: concat!($($doc),+),
            },)*];
        }
    };
}

pub(super) use config_table;
