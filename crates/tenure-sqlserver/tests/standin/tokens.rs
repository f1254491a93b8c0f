//! The words, variables, numbers, texts and signs of a batch.

#[derive(Clone, Debug, PartialEq)]
pub enum Token {
    Word(String),
    Variable(String),
    Number(i64),
    Text(String),
    Sign(String),
}

pub fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut all = Vec::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let mut word = |first: char| {
            let mut word = String::from(first);
            while let Some(c) = rest.next_if(|c| c.is_alphanumeric() || "_@".contains(*c)) {
                word.push(c);
            }
            word
        };
        match c {
            c if c.is_whitespace() => {}
            '@' => all.push(Token::Variable(word(c))),
            c if c.is_ascii_digit() => {
                all.push(Token::Number(word(c).parse().map_err(|_| "a number")?));
            }
            c if c.is_alphabetic() => {
                let word = word(c);
                if word != "N" || rest.peek() != Some(&'\'') {
                    all.push(Token::Word(word));
                }
            }
            '\'' | '[' => {
                let end = if c == '[' { ']' } else { c };
                let mut inner = String::new();
                loop {
                    match rest.next().ok_or("a quote without its end")? {
                        c if c == end && rest.next_if_eq(&end).is_none() => break,
                        c => inner.push(c),
                    }
                }
                all.push(match end {
                    ']' => Token::Word(inner),
                    _ => Token::Text(inner),
                });
            }
            '<' | '>' => {
                let mut sign = String::from(c);
                sign.extend(rest.next_if(|c| "=>".contains(*c)));
                all.push(Token::Sign(sign));
            }
            c if "(),;=+-*.".contains(c) => all.push(Token::Sign(c.into())),
            c => return Err(format!("what is {c:?}")),
        }
    }
    Ok(all)
}
