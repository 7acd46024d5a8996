//! Passes comparisons of a query to the scan.

use crossdock::{ColumnName, Decimal, Literal, Operator, Predicate};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator as Comparison, TableProviderFilterPushDown};

/// Returns the comparison that an expression is, and whether the rows that fulfil it are exactly
/// those for which the expression is true. `None` for other expressions.
pub fn predicate(expression: &Expr) -> Option<(Predicate, TableProviderFilterPushDown)> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = expression else { return None };
    let (column, operator, constant) = match (&**left, &**right) {
        (Expr::Column(column), Expr::Literal(constant, _)) => (column, operator(*op)?, constant),
        (Expr::Literal(constant, _), Expr::Column(column)) => (column, mirrored(operator(*op)?), constant),
        _ => return None,
    };
    let literal = literal(constant)?;
    let is_float = matches!(literal, Literal::Float(_));
    let operator = match operator {
        operator if !is_float => operator,
        // DataFusion orders floating-point numbers totally: -0 is less than 0, and NaN is greater
        // than all other numbers. The scan may return more rows, but not fewer.
        Operator::Less | Operator::LessEqual => Operator::LessEqual,
        Operator::Equal => Operator::Equal,
        _ => return None,
    };
    let exactness = match is_float {
        true => TableProviderFilterPushDown::Inexact,
        false => TableProviderFilterPushDown::Exact,
    };
    // A path of one name is a column, also if the name contains dots.
    let column = ColumnName::Path(vec![column.name.clone()]);
    Some((Predicate { column, operator, literal }, exactness))
}

fn operator(of: Comparison) -> Option<Operator> {
    Some(match of {
        Comparison::Eq => Operator::Equal,
        Comparison::NotEq => Operator::NotEqual,
        Comparison::Lt => Operator::Less,
        Comparison::LtEq => Operator::LessEqual,
        Comparison::Gt => Operator::Greater,
        Comparison::GtEq => Operator::GreaterEqual,
        _ => return None,
    })
}

fn mirrored(operator: Operator) -> Operator {
    match operator {
        Operator::Less => Operator::Greater,
        Operator::LessEqual => Operator::GreaterEqual,
        Operator::Greater => Operator::Less,
        Operator::GreaterEqual => Operator::LessEqual,
        same => same,
    }
}

/// The planner has converted the constant to the type of the column.
fn literal(constant: &ScalarValue) -> Option<Literal> {
    let integer = |n: i128| Literal::Decimal(Decimal::from(n));
    let time = |n: i64, ns: i128, zone: &Option<_>| Literal::Timestamp {
        ns: i128::from(n) * ns,
        has_zone: zone.is_some(),
    };
    Some(match constant {
        ScalarValue::Boolean(Some(truth)) => Literal::Bool(*truth),
        ScalarValue::Int8(Some(n)) => integer((*n).into()),
        ScalarValue::Int16(Some(n)) => integer((*n).into()),
        ScalarValue::Int32(Some(n)) => integer((*n).into()),
        ScalarValue::Int64(Some(n)) => integer((*n).into()),
        ScalarValue::UInt8(Some(n)) => integer((*n).into()),
        ScalarValue::UInt16(Some(n)) => integer((*n).into()),
        ScalarValue::UInt32(Some(n)) => integer((*n).into()),
        ScalarValue::UInt64(Some(n)) => integer((*n).into()),
        ScalarValue::Float64(Some(n)) if !n.is_nan() => Literal::Float(*n),
        ScalarValue::Utf8(Some(text))
        | ScalarValue::LargeUtf8(Some(text))
        | ScalarValue::Utf8View(Some(text)) => Literal::Text(text.clone()),
        ScalarValue::Binary(Some(bytes))
        | ScalarValue::LargeBinary(Some(bytes))
        | ScalarValue::BinaryView(Some(bytes)) => Literal::Bytes(bytes.clone()),
        ScalarValue::Date32(Some(days)) => Literal::Date((*days).into()),
        ScalarValue::TimestampSecond(Some(n), zone) => time(*n, 1_000_000_000, zone),
        ScalarValue::TimestampMillisecond(Some(n), zone) => time(*n, 1_000_000, zone),
        ScalarValue::TimestampMicrosecond(Some(n), zone) => time(*n, 1_000, zone),
        ScalarValue::TimestampNanosecond(Some(n), zone) => time(*n, 1, zone),
        ScalarValue::Dictionary(_, value) => literal(value)?,
        _ => return None,
    })
}
