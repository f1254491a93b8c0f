//! The T-SQL that our batches are written in, read into statements. It knows no other.

use std::iter::Peekable;
use std::vec::IntoIter;

use super::tokens::{Token, tokens};

#[derive(Clone, Debug)]
pub enum Expr {
    Null,
    Number(i64),
    Text(String),
    Variable(String),
    Column(String),
    Binary(Box<Expr>, String, Box<Expr>),
    Not(Box<Expr>),
    IsNull(Box<Expr>, bool),
    Case(Box<Expr>, Box<Expr>, Box<Expr>),
    Collate(Box<Expr>),
    Call(String, Vec<Expr>),
    Convert(Type, Box<Expr>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    Int,
    BigInt,
    Text(usize),
    Time(u8),
    Date,
}

#[derive(Clone, Debug)]
pub enum Statement {
    /// SET NOCOUNT ON and its like.
    Option(String),
    Declare(String, Type, Option<Expr>),
    Set(String, Expr),
    If(Expr, Vec<Statement>, Vec<Statement>),
    Try(Vec<Statement>, Vec<Statement>),
    Begin,
    Commit,
    Rollback,
    Throw(Option<(u32, String)>),
    /// The row of `@key` into variables, with these hints.
    Look(Vec<(String, Expr)>, String, Vec<String>),
    Answer(Vec<(Expr, String)>),
    List(Vec<(Expr, String)>, String, Expr),
    Insert(String, Vec<String>, Vec<Expr>),
    Update(String, Vec<(String, Expr)>),
}

pub fn parse(text: &str) -> Result<Vec<Statement>, String> {
    let mut parser = Parser(tokens(text)?.into_iter().peekable());
    let mut all = Vec::new();
    while parser.0.peek().is_some() {
        all.push(parser.statement()?);
    }
    Ok(all)
}

struct Parser(Peekable<IntoIter<Token>>);

impl Parser {
    fn next(&mut self) -> Result<Token, String> {
        self.0
            .next()
            .ok_or_else(|| "the batch ends too soon".into())
    }

    fn is(&mut self, word: &str) -> bool {
        matches!(self.0.peek(), Some(Token::Word(w)) if w.eq_ignore_ascii_case(word))
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.is(word);
        if found {
            self.0.next();
        }
        found
    }

    fn need(&mut self, word: &str) -> Result<(), String> {
        match self.take(word) {
            true => Ok(()),
            false => Err(format!("{word} has to stand before {:?}", self.0.peek())),
        }
    }

    fn sign(&mut self, sign: &str) -> bool {
        self.0.next_if_eq(&Token::Sign(sign.into())).is_some()
    }

    fn need_sign(&mut self, sign: &str) -> Result<(), String> {
        match self.sign(sign) {
            true => Ok(()),
            false => Err(format!("{sign} has to stand before {:?}", self.0.peek())),
        }
    }

    fn word(&mut self) -> Result<String, String> {
        match self.next()? {
            Token::Word(word) => Ok(word),
            other => Err(format!("{other:?} is no word")),
        }
    }

    fn table(&mut self) -> Result<String, String> {
        let mut name = self.word()?;
        while self.sign(".") {
            name = format!("{name}.{}", self.word()?);
        }
        Ok(name)
    }

    /// Up to END or the end, whichever it is.
    fn block(&mut self) -> Result<Vec<Statement>, String> {
        let mut all = Vec::new();
        while !self.is("END") {
            all.push(self.statement()?);
        }
        self.need("END")?;
        Ok(all)
    }

    fn statement(&mut self) -> Result<Statement, String> {
        let statement = self.bare_statement()?;
        // THROW is taken for something else where the statement before it has none.
        if !matches!(statement, Statement::If(..) | Statement::Declare(..)) {
            self.need_sign(";")?;
        } else {
            self.sign(";");
        }
        Ok(statement)
    }

    fn bare_statement(&mut self) -> Result<Statement, String> {
        let word = self.word()?;
        match word.to_ascii_uppercase().as_str() {
            "SET" => self.set(),
            "DECLARE" => self.declare(),
            "IF" => {
                let condition = self.expr()?;
                self.need("BEGIN")?;
                let then = self.block()?;
                let mut other = Vec::new();
                if self.take("ELSE") {
                    if self.is("IF") {
                        other.push(self.bare_statement()?);
                    } else {
                        self.need("BEGIN")?;
                        other = self.block()?;
                    }
                }
                Ok(Statement::If(condition, then, other))
            }
            "BEGIN" if self.take("TRANSACTION") => Ok(Statement::Begin),
            "BEGIN" if self.take("TRY") => {
                let tried = self.block()?;
                self.need("TRY")?;
                self.need("BEGIN")?;
                self.need("CATCH")?;
                let caught = self.block()?;
                self.need("CATCH")?;
                Ok(Statement::Try(tried, caught))
            }
            "COMMIT" if self.take("TRANSACTION") => Ok(Statement::Commit),
            "ROLLBACK" if self.take("TRANSACTION") => Ok(Statement::Rollback),
            "THROW" => self.throw(),
            "SELECT" => self.select(),
            "INSERT" => self.insert(),
            "UPDATE" => self.update(),
            _ => Err(format!("{word} begins no statement of ours")),
        }
    }

    fn set(&mut self) -> Result<Statement, String> {
        if let Some(Token::Variable(_)) = self.0.peek() {
            let (name, value) = self.assignment()?;
            return Ok(Statement::Set(name, value));
        }
        let mut words = Vec::new();
        while self.0.peek().is_some_and(|t| *t != Token::Sign(";".into())) {
            words.push(match self.next()? {
                Token::Word(word) => word,
                Token::Number(number) => number.to_string(),
                other => return Err(format!("{other:?} after SET")),
            });
        }
        Ok(Statement::Option(words.join(" ")))
    }

    fn assignment(&mut self) -> Result<(String, Expr), String> {
        match self.next()? {
            Token::Variable(name) => {
                self.need_sign("=")?;
                Ok((name, self.expr()?))
            }
            other => Err(format!("{other:?} is no variable")),
        }
    }

    /// One at a time: the next begins with its comma.
    fn declare(&mut self) -> Result<Statement, String> {
        let Token::Variable(name) = self.next()? else {
            return Err("DECLARE without a variable".into());
        };
        let kind = self.kind()?;
        let value = match self.sign("=") {
            true => Some(self.expr()?),
            false => None,
        };
        if self.sign(",") {
            let rest: Vec<Token> = std::iter::once(Token::Word("DECLARE".into()))
                .chain(self.0.by_ref())
                .collect();
            self.0 = rest.into_iter().peekable();
        }
        Ok(Statement::Declare(name, kind, value))
    }

    fn kind(&mut self) -> Result<Type, String> {
        let word = self.word()?.to_ascii_lowercase();
        let mut size = None;
        if self.sign("(") {
            let Token::Number(number) = self.next()? else {
                return Err("a size".into());
            };
            self.need_sign(")")?;
            size = usize::try_from(number).ok();
        }
        Ok(match (word.as_str(), size) {
            ("int", None) => Type::Int,
            ("bigint", None) => Type::BigInt,
            ("date", None) => Type::Date,
            ("nvarchar", Some(size)) => Type::Text(size),
            ("datetime2", Some(scale @ 0..=7)) => Type::Time(u8::try_from(scale).unwrap_or(7)),
            other => return Err(format!("the type {other:?}")),
        })
    }

    fn throw(&mut self) -> Result<Statement, String> {
        let Some(Token::Number(_)) = self.0.peek() else {
            return Ok(Statement::Throw(None));
        };
        let (number, _, text) = (self.next()?, self.need_sign(",")?, self.next()?);
        self.need_sign(",")?;
        self.next()?;
        match (number, text) {
            (Token::Number(number), Token::Text(text)) => {
                let number = u32::try_from(number).map_err(|_| "THROW")?;
                Ok(Statement::Throw(Some((number, text))))
            }
            _ => Err("THROW takes a number, a text and a state".into()),
        }
    }

    fn select(&mut self) -> Result<Statement, String> {
        if let Some(Token::Variable(_)) = self.0.peek() {
            // `@a = x` fills variables, `@a AS x` is an answer.
            let mut ahead = self.0.clone();
            ahead.next();
            if ahead.next() == Some(Token::Sign("=".into())) {
                return self.look();
            }
        }
        let mut items = Vec::new();
        loop {
            let value = self.expr()?;
            self.need("AS")?;
            items.push((value, self.word()?));
            if !self.sign(",") {
                break;
            }
        }
        if !self.take("FROM") {
            return Ok(Statement::Answer(items));
        }
        let table = self.table()?;
        self.need("WHERE")?;
        Ok(Statement::List(items, table, self.expr()?))
    }

    fn look(&mut self) -> Result<Statement, String> {
        let mut items = vec![self.assignment()?];
        while self.sign(",") {
            items.push(self.assignment()?);
        }
        self.need("FROM")?;
        let table = self.table()?;
        let mut hints = Vec::new();
        if self.take("WITH") {
            self.need_sign("(")?;
            loop {
                hints.push(self.word()?);
                if !self.sign(",") {
                    break;
                }
            }
            self.need_sign(")")?;
        }
        self.by_key()?;
        Ok(Statement::Look(items, table, hints))
    }

    /// The only condition that our statements on one row have.
    fn by_key(&mut self) -> Result<(), String> {
        self.need("WHERE")?;
        self.need("LeaseKey")?;
        self.need_sign("=")?;
        match self.next()? {
            Token::Variable(name) if name == "@key" => Ok(()),
            other => Err(format!("{other:?} for LeaseKey")),
        }
    }

    fn insert(&mut self) -> Result<Statement, String> {
        self.need("INTO")?;
        let table = self.table()?;
        self.need_sign("(")?;
        let mut columns = vec![self.word()?];
        while self.sign(",") {
            columns.push(self.word()?);
        }
        self.need_sign(")")?;
        self.need("VALUES")?;
        self.need_sign("(")?;
        Ok(Statement::Insert(table, columns, self.arguments()?))
    }

    fn update(&mut self) -> Result<Statement, String> {
        let table = self.table()?;
        self.need("SET")?;
        let mut set = Vec::new();
        loop {
            let column = self.word()?;
            self.need_sign("=")?;
            set.push((column, self.expr()?));
            if !self.sign(",") {
                break;
            }
        }
        self.by_key()?;
        Ok(Statement::Update(table, set))
    }

    fn arguments(&mut self) -> Result<Vec<Expr>, String> {
        let mut all = Vec::new();
        while !self.sign(")") {
            all.push(self.expr()?);
            self.sign(",");
        }
        Ok(all)
    }

    fn expr(&mut self) -> Result<Expr, String> {
        self.chain(&["OR"], |p| {
            p.chain(&["AND"], |p| match p.take("NOT") {
                true => Ok(Expr::Not(Box::new(p.compared()?))),
                false => p.compared(),
            })
        })
    }

    fn chain(
        &mut self,
        words: &[&str],
        mut part: impl FnMut(&mut Self) -> Result<Expr, String>,
    ) -> Result<Expr, String> {
        let mut left = part(self)?;
        loop {
            let found = words
                .iter()
                .find(|w| match w.chars().all(char::is_alphabetic) {
                    true => self.take(w),
                    false => self.sign(w),
                });
            let Some(word) = found else { return Ok(left) };
            left = Expr::Binary(Box::new(left), (*word).into(), Box::new(part(self)?));
        }
    }

    fn compared(&mut self) -> Result<Expr, String> {
        let left = self.sum()?;
        if self.take("IS") {
            let not = self.take("NOT");
            self.need("NULL")?;
            return Ok(Expr::IsNull(Box::new(left), not));
        }
        for sign in ["=", "<>", "<=", ">=", "<", ">"] {
            if self.sign(sign) {
                return Ok(Expr::Binary(
                    Box::new(left),
                    sign.into(),
                    Box::new(self.sum()?),
                ));
            }
        }
        Ok(left)
    }

    fn sum(&mut self) -> Result<Expr, String> {
        self.chain(&["+", "-"], |p| p.chain(&["*"], Self::primary))
    }

    fn primary(&mut self) -> Result<Expr, String> {
        let value = match self.next()? {
            Token::Number(number) => Expr::Number(number),
            Token::Text(text) => Expr::Text(text),
            Token::Variable(name) => Expr::Variable(name),
            Token::Sign(sign) if sign == "(" => {
                let inner = self.expr()?;
                self.need_sign(")")?;
                inner
            }
            Token::Word(word) => self.of_word(word)?,
            other => return Err(format!("{other:?} is no value")),
        };
        if self.take("COLLATE") {
            self.need("Latin1_General_BIN2")?;
            return Ok(Expr::Collate(Box::new(value)));
        }
        Ok(value)
    }

    fn of_word(&mut self, word: String) -> Result<Expr, String> {
        match word.to_ascii_uppercase().as_str() {
            "NULL" => return Ok(Expr::Null),
            "CASE" => {
                self.need("WHEN")?;
                let condition = self.expr()?;
                self.need("THEN")?;
                let then = self.expr()?;
                self.need("ELSE")?;
                let other = self.expr()?;
                self.need("END")?;
                return Ok(Expr::Case(
                    Box::new(condition),
                    Box::new(then),
                    Box::new(other),
                ));
            }
            "CONVERT" => {
                self.need_sign("(")?;
                let kind = self.kind()?;
                self.need_sign(",")?;
                let value = self.expr()?;
                self.need_sign(")")?;
                return Ok(Expr::Convert(kind, Box::new(value)));
            }
            _ => {}
        }
        match self.sign("(") {
            true => Ok(Expr::Call(word.to_ascii_uppercase(), self.arguments()?)),
            false => Ok(Expr::Column(word)),
        }
    }
}
