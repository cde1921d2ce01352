//! `nnhal info --live`: what a driver tells of its state, as `dumpsys` prints it on a device.

use super::error::ToolError;
use super::print;
use crate::client::Driver;
use crate::statistics::Value;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// Prints the state of `driver`. An error where it does not tell.
pub fn tell(driver: &Driver, json: bool) -> Result<(), ToolError> {
    let diagnostics = driver.diagnostics()?.ok_or_else(|| {
        let why = "does not tell its state: its device is without the extension vendor.nnhal.diagnostics";
        ToolError::Usage(format!("the driver at {} {why}", driver.address()))
    })?;
    let status = diagnostics.status()?;
    if json {
        return print::line(status);
    }
    let report: Value = serde_json::from_str(&status)
        .map_err(|why| ToolError::Failed(format!("the driver's state is not JSON: {why}")))?;
    print::line(report.text().trim_end())
}

/// A report keeps the order that the driver has it in.
impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Unknown)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value))
    }

    // Reports of this version have whole numbers only; those of a later one may have others.
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Text(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Text(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
        }
        Ok(Value::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Value::Fields(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let report = Value::fields([
            ("z", Value::Unknown),
            ("a", Value::Bool(false)),
            ("list", Value::List(vec![Value::Number(u64::MAX), Value::from("\"é\n")])),
            ("empty", Value::Fields(Vec::new())),
        ]);
        assert_eq!(serde_json::from_str::<Value>(&report.json()).unwrap(), report);
        assert_eq!(serde_json::from_str::<Value>("-1").unwrap(), Value::from("-1"));
        assert!(serde_json::from_str::<Value>("{\"a\":").is_err());
    }
}
