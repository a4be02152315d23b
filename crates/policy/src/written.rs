//! Reads JSON that somebody wrote into a type, and says which place does not fit. What is not here: the JSON text itself
//! (the core's `json`), what the types mean.
//!
//! serde's derived readers also take a struct from a list of its fields' values, and a word of a closed set from an object
//! with that word as its only key. Nobody writes those on purpose, and a person reviewing `[3, 3, 60000]` sees no names;
//! so neither is read. Every reader of users' JSON goes through [`read`].

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, VariantAccess, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::{Map, Value};

use crate::fault::escape;

/// Where and why a JSON value does not fit its type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {detail}")]
pub struct Misfit {
    /// JSON pointer to the place; empty for the whole value.
    pub pointer: String,
    /// What is wrong there.
    pub detail: String,
}

impl Misfit {
    /// The same fault, seen from one level further out.
    fn below(mut self, key: &str) -> Self {
        self.pointer.insert_str(0, &format!("/{}", escape(key)));
        self
    }
}

impl serde::de::Error for Misfit {
    fn custom<T: fmt::Display>(detail: T) -> Self {
        Self { pointer: String::new(), detail: detail.to_string() }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        match found {
            Unexpected::Unit => Self::custom(format!("invalid type: null, expected {expected}")),
            other => Self::custom(format!("invalid type: {other}, expected {expected}")),
        }
    }
}

/// Reads a value strictly: a struct only from an object, a word only from a text.
pub fn read<'de, T: Deserialize<'de>>(value: &'de Value) -> Result<T, Misfit> {
    T::deserialize(Written(value))
}

/// A value as a source of types.
#[derive(Clone, Copy)]
struct Written<'de>(&'de Value);

impl<'de> Written<'de> {
    fn kind(self) -> Unexpected<'de> {
        match self.0 {
            Value::Null => Unexpected::Unit,
            Value::Bool(value) => Unexpected::Bool(*value),
            Value::Number(_) => Unexpected::Other("number"),
            Value::String(text) => Unexpected::Str(text),
            Value::Array(_) => Unexpected::Other("list"),
            Value::Object(_) => Unexpected::Map,
        }
    }
}

impl<'de> IntoDeserializer<'de, Misfit> for Written<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Written<'de> {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(whole), _, _) => visitor.visit_u64(whole),
                (None, Some(whole), _) => visitor.visit_i64(whole),
                (None, None, Some(part)) => visitor.visit_f64(part),
                (None, None, None) => Err(Misfit::invalid_type(self.kind(), &visitor)),
            },
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => {
                let mut rest = Items { rest: items.iter(), read: 0 };
                let read = visitor.visit_seq(&mut rest)?;
                match rest.rest.len() {
                    0 => Ok(read),
                    _ => Err(Misfit::invalid_length(items.len(), &format!("{} entries", rest.read).as_str())),
                }
            }
            Value::Object(fields) => visitor.visit_map(Fields::of(fields)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        match self.0 {
            Value::Object(fields) => visitor.visit_map(Fields::of(fields)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err(Misfit::invalid_type(self.kind(), &"an object"))
            }
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        match self.0 {
            Value::String(word) => visitor.visit_enum(word.as_str().into_deserializer()),
            Value::Object(fields) => {
                let mut entries = fields.iter();
                match (entries.next(), entries.next()) {
                    (Some((word, content)), None) => visitor.visit_enum(Keyed { word, content }),
                    (None, _) | (_, Some(_)) => Err(Misfit::invalid_value(self.kind(), &"an object with one key")),
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
                Err(Misfit::invalid_type(self.kind(), &"a text, or an object with one key"))
            }
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

/// What of a list is not read yet.
struct Items<'de> {
    rest: std::slice::Iter<'de, Value>,
    read: usize,
}

impl<'de> SeqAccess<'de> for &mut Items<'de> {
    type Error = Misfit;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Misfit> {
        let Some(item) = self.rest.next() else { return Ok(None) };
        let read = seed.deserialize(Written(item)).map_err(|misfit| misfit.below(&self.read.to_string()))?;
        self.read += 1;
        Ok(Some(read))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// What of an object is not read yet.
struct Fields<'de> {
    rest: serde_json::map::Iter<'de>,
    /// Its key is read, its value is next.
    open: Option<(&'de str, &'de Value)>,
}

impl<'de> Fields<'de> {
    fn of(fields: &'de Map<String, Value>) -> Self {
        Self { rest: fields.iter(), open: None }
    }
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = Misfit;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Misfit> {
        let Some((key, value)) = self.rest.next() else { return Ok(None) };
        self.open = Some((key, value));
        let word: StrDeserializer<'de, Misfit> = key.as_str().into_deserializer();
        seed.deserialize(word).map(Some).map_err(|misfit| misfit.below(key))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Misfit> {
        let Some((key, value)) = self.open.take() else { return Err(Misfit::custom("a value without its key")) };
        seed.deserialize(Written(value)).map_err(|misfit| misfit.below(key))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// One of several forms, named by the only key of an object.
struct Keyed<'de> {
    word: &'de str,
    content: &'de Value,
}

impl<'de> EnumAccess<'de> for Keyed<'de> {
    type Error = Misfit;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Misfit> {
        let word: StrDeserializer<'de, Misfit> = self.word.into_deserializer();
        seed.deserialize(word).map(|variant| (variant, self))
    }
}

impl<'de> VariantAccess<'de> for Keyed<'de> {
    type Error = Misfit;

    fn unit_variant(self) -> Result<(), Misfit> {
        Err(Misfit::custom(format!("`{}` is written as a text, not as the key of an object", self.word)))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Misfit> {
        seed.deserialize(Written(self.content)).map_err(|misfit| misfit.below(self.word))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Misfit> {
        Written(self.content).deserialize_any(visitor).map_err(|misfit| misfit.below(self.word))
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Misfit> {
        Written(self.content).deserialize_struct("", fields, visitor).map_err(|misfit| misfit.below(self.word))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        name: String,
        #[serde(default)]
        inner: Option<Inner>,
        #[serde(default)]
        by_name: BTreeMap<String, Inner>,
        #[serde(default)]
        list: Vec<Inner>,
        #[serde(default)]
        form: Option<Form>,
        #[serde(default)]
        free: Value,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        count: u32,
        share: f64,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Form {
        Word,
        Carried(Inner),
        Pair(u8, u8),
        Fields { a: i64 },
    }

    #[test]
    fn what_serde_json_reads_from_names_is_read_the_same() {
        for form in [
            json!("word"),
            json!({"carried": {"count": 1, "share": 0.5}}),
            json!({"pair": [1, 2]}),
            json!({"fields": {"a": -3}}),
        ] {
            let value = json!({
                "name": "n", "inner": {"count": u32::MAX, "share": 1}, "by_name": {"x": {"count": 0, "share": 2.5}},
                "list": [{"count": 1, "share": 1e300}], "form": form,
                "free": {"deep": [null, true, {"n": u64::MAX, "i": i64::MIN, "f": 0.1}]}
            });
            let exact: Outer = read(&value).unwrap();
            assert_eq!(exact, serde_json::from_value(value).unwrap());
        }
        let absent: Outer = read(&json!({"name": "n", "inner": null, "form": null})).unwrap();
        assert_eq!((absent.inner, absent.form), (None, None));
    }

    #[test]
    fn lists_are_no_structs_and_objects_no_words() {
        let inner = json!([1, 0.5]);
        for (value, pointer) in [
            (json!(["n"]), ""),
            (json!(7), ""),
            (json!({"name": "n", "inner": inner}), "/inner"),
            (json!({"name": "n", "by_name": {"a/b~": inner}}), "/by_name/a~1b~0"),
            (json!({"name": "n", "by_name": [inner]}), "/by_name"),
            (json!({"name": "n", "list": [{"count": 1, "share": 1}, inner]}), "/list/1"),
            (json!({"name": "n", "form": {"word": null}}), "/form"),
            (json!({"name": "n", "form": {"word": {}}}), "/form"),
            (json!({"name": "n", "form": {"carried": inner}}), "/form/carried"),
            (json!({"name": "n", "form": {"fields": [1]}}), "/form/fields"),
            (json!({"name": "n", "form": {"pair": [1]}}), "/form/pair"),
            (json!({"name": "n", "form": {"pair": [1, 2, 3]}}), "/form/pair"),
            (json!({"name": "n", "form": {"word": null, "pair": [1, 2]}}), "/form"),
            (json!({"name": "n", "form": {}}), "/form"),
            (json!({"name": "n", "form": "carried"}), "/form"),
            (json!({"name": "n", "form": ["word"]}), "/form"),
            (json!({"name": "n", "inner": {"count": 4_294_967_296_u64, "share": 1}}), "/inner/count"),
            (json!({"name": "n", "inner": {"count": 1.0, "share": 1}}), "/inner/count"),
            (json!({"name": "n", "other": 1}), "/other"),
        ] {
            let misfit = read::<Outer>(&value).unwrap_err();
            assert_eq!(misfit.pointer, pointer, "{value}: {misfit}");
        }
    }
}
