//! Values as T-SQL has them: what fits into a type, and what an operator gives.

use std::cmp::Ordering;

use super::database::{Fault, Value, to_scale};
use super::parse::{Expr, Type};

/// In ticks of 100 ns.
pub const DAY: i64 = 864_000_000_000;

pub fn check_columns(expr: &Expr, known: &[&String]) -> Result<(), Fault> {
    match expr {
        Expr::Column(name) if !known.contains(&name) => {
            Err(Fault::new(207, format!("Invalid column name '{name}'.")))
        }
        Expr::Call(_, inner) => inner.iter().try_for_each(|e| check_columns(e, known)),
        _ => Ok(()),
    }
}

/// As a variable or a column of this type takes it. A variable cuts a text without a word.
pub fn fit(kind: &Type, value: Value) -> Result<Value, Fault> {
    let overflow = || Fault::new(8115, "Arithmetic overflow error");
    Ok(match (kind, value) {
        (_, Value::Null) => Value::Null,
        (Type::Int, Value::Number(number)) => {
            Value::Number(i32::try_from(number).map_err(|_| overflow())?.into())
        }
        (Type::BigInt, Value::Number(number)) => Value::Number(number),
        (Type::Text(units), Value::Text(text)) => {
            let kept: Vec<u16> = text.encode_utf16().take(*units).collect();
            Value::Text(String::from_utf16_lossy(&kept))
        }
        (Type::Time(scale), Value::Time(time)) => Value::Time(to_scale(time, *scale)),
        (Type::Time(_), Value::Text(text)) if text == "1970-01-01T00:00:00" => Value::Time(0),
        (Type::Date, Value::Time(time)) => Value::Time(time.div_euclid(DAY) * DAY),
        (kind, value) => return Err(Fault::new(206, format!("{value:?} is no {kind:?}"))),
    })
}

pub fn operate(left: &Value, sign: &str, right: &Value, binary: bool) -> Result<Value, Fault> {
    let truth = |value: &Value| match value {
        Value::Number(number) => Some(*number == 1),
        _ => None,
    };
    let of = |known: Option<bool>| known.map_or(Value::Null, |is| Value::Number(is.into()));
    match sign {
        "AND" => {
            let (left, right) = (truth(left), truth(right));
            let no = left == Some(false) || right == Some(false);
            return Ok(of(if no { Some(false) } else { left.and(right) }));
        }
        "OR" => {
            let (left, right) = (truth(left), truth(right));
            let yes = left == Some(true) || right == Some(true);
            return Ok(of(if yes { Some(true) } else { left.and(right) }));
        }
        _ => {}
    }
    if *left == Value::Null || *right == Value::Null {
        return Ok(Value::Null);
    }
    if let (Value::Number(a), Value::Number(b)) = (left, right) {
        let result = match sign {
            "+" => Some(a.checked_add(*b)),
            "-" => Some(a.checked_sub(*b)),
            "*" => Some(a.checked_mul(*b)),
            _ => None,
        };
        if let Some(result) = result {
            let overflow = || Fault::new(8115, "Arithmetic overflow error");
            return Ok(Value::Number(result.ok_or_else(overflow)?));
        }
    }
    let order = match (left, right) {
        (Value::Number(a), Value::Number(b)) | (Value::Time(a), Value::Time(b)) => a.cmp(b),
        (Value::Text(a), Value::Text(b)) => text_order(a, b, binary),
        _ => return Err(Fault::new(206, format!("{left:?} {sign} {right:?}"))),
    };
    Ok(of(Some(match sign {
        "=" => order == Ordering::Equal,
        "<>" => order != Ordering::Equal,
        "<" => order == Ordering::Less,
        ">" => order == Ordering::Greater,
        "<=" => order != Ordering::Greater,
        ">=" => order != Ordering::Less,
        _ => return Err(Fault::new(102, sign.to_owned())),
    })))
}

/// The shorter text is filled up with blanks, in every collation; the database's own
/// ignores case too.
fn text_order(left: &str, right: &str, binary: bool) -> Ordering {
    let form = |text: &str| match binary {
        true => text.trim_end_matches(' ').to_owned(),
        false => text.trim_end_matches(' ').to_lowercase(),
    };
    form(left).cmp(&form(right))
}
