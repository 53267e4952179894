//! Types that travel as the original's do: fields in camel case, left out when they say
//! nothing, and a null read as left out. Go clients write all three.
//!
//! [`wire_type!`] writes such a type down once, with the name under which the OpenAPI
//! documents publish it; [`root_type!`] writes down a whole kind. Their doc comments are
//! what `kubectl explain` shows.

use std::{borrow::Cow, fmt, marker::PhantomData};

use k8s_openapi::Resource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::IgnoredAny};

macro_rules! wire_type {
    ($(#[$about:meta])* $name:ident = $published:literal {
        $($(#[$said:meta])* $field:ident: $type:ty,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase")]
        #[schemars(rename = $published)]
        pub struct $name {
            $($(#[$said])*
            #[serde(
                default,
                skip_serializing_if = "crate::wire::says_nothing",
                deserialize_with = "crate::wire::or_nothing"
            )]
            pub $field: $type,)*
        }
    };
}

macro_rules! root_type {
    ($(#[$about:meta])* $name:ident = $published:literal, $group:literal / $version:literal $plural:literal
     $scope:ident { $($(#[$said:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(rename_all = "camelCase")]
        #[schemars(rename = $published)]
        pub struct $name {
            #[serde(default)]
            pub api_version: crate::wire::ApiVersion<$name>,
            #[serde(default)]
            pub kind: crate::wire::KindName<$name>,
            #[serde(default)]
            #[schemars(required)]
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            $($(#[$said])*
            #[serde(
                default,
                skip_serializing_if = "crate::wire::says_nothing",
                deserialize_with = "crate::wire::or_nothing"
            )]
            pub $field: $type,)*
        }

        impl k8s_openapi::Resource for $name {
            const API_VERSION: &'static str = concat!($group, "/", $version);
            const GROUP: &'static str = $group;
            const KIND: &'static str = stringify!($name);
            const VERSION: &'static str = $version;
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = k8s_openapi::$scope;
        }

        impl k8s_openapi::Metadata for $name {
            type Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

            fn metadata(&self) -> &Self::Ty {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut Self::Ty {
                &mut self.metadata
            }
        }
    };
}

pub(crate) use {root_type, wire_type};

/// Whether a field is as if it were not there.
pub(crate) fn says_nothing<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

pub(crate) fn or_nothing<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The `apiVersion` of `K`: always the same text, so nothing has to be kept.
pub struct ApiVersion<K>(PhantomData<fn() -> K>);

/// The `kind` of `K`.
pub struct KindName<K>(PhantomData<fn() -> K>);

macro_rules! constant_text {
    ($name:ident, $text:ident) => {
        impl<K> Clone for $name<K> {
            fn clone(&self) -> Self {
                Self::default()
            }
        }
        impl<K> Default for $name<K> {
            fn default() -> Self {
                Self(PhantomData)
            }
        }
        impl<K> PartialEq for $name<K> {
            fn eq(&self, _: &Self) -> bool {
                true
            }
        }
        impl<K: Resource> fmt::Debug for $name<K> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(K::$text)
            }
        }
        impl<K: Resource> Serialize for $name<K> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(K::$text)
            }
        }
        impl<'de, K> Deserialize<'de> for $name<K> {
            // Items of a list may lack it, and the type is known anyway.
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                IgnoredAny::deserialize(deserializer)?;
                Ok(Self::default())
            }
        }
        impl<K> JsonSchema for $name<K> {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> Cow<'static, str> {
                "string".into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string"})
            }
        }
    };
}

constant_text!(ApiVersion, API_VERSION);
constant_text!(KindName, KIND);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::kinds::key_pair::KeyPair;

    #[test]
    fn a_null_is_as_good_as_nothing_and_neither_is_written() {
        let read: KeyPair = serde_json::from_value(
            json!({"metadata": {"name": "a"}, "spec": {"publicKey": null}, "status": null}),
        )
        .unwrap();
        assert_eq!(
            serde_json::to_value(&read).unwrap(),
            json!({"apiVersion": "harvesterhci.io/v1beta1", "kind": "KeyPair", "metadata": {"name": "a"}})
        );
    }
}
