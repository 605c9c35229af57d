//! From tokens to a tree, by recursive descent.

use super::error::{Flaw, Span};
use super::token::{Token, tokens};
use super::tree::{Node, NodeKind, Sign, Trace, Window};
use super::{MAX_DEPTH, MAX_LENGTH};

pub(super) fn parse(text: &str) -> Result<Node, Flaw> {
    if text.len() > MAX_LENGTH {
        let span = Span { start: 0, end: 0 };
        let message = format!("the equation has {} bytes, at most {MAX_LENGTH} are allowed", text.len());
        return Err(Flaw::new(span, message).hint("split it into several indicators"));
    }
    let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0 };
    if parser.peek() == &Token::End {
        return Err(Flaw::new(parser.span(), "the equation is empty").hint("write for example mean(TEMP)"));
    }
    let node = parser.any()?;
    match parser.peek() {
        Token::End => Ok(node),
        Token::Where => Err(Flaw::new(parser.span(), "`where` stands inside a function, behind its trace")
            .hint("write for example mean(TEMP where STEP == 3)")),
        Token::Sign("[") => Err(Flaw::new(parser.span(), "a window belongs to a trace")
            .hint("write for example mean(TEMP[10s..50s])")),
        other => {
            let message = format!("expected an operator or the end, not {}", other.describe());
            Err(Flaw::new(parser.span(), message))
        }
    }
}

struct Parser {
    tokens: Vec<(Token, Span)>,
    at: usize,
    depth: usize,
}

type Parsed = Result<Node, Flaw>;

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    fn span(&self) -> Span {
        self.tokens[self.at].1
    }

    /// The next token; the end stays.
    fn take(&mut self) -> (Token, Span) {
        let taken = self.tokens[self.at].clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        taken
    }

    fn take_if(&mut self, token: &Token) -> bool {
        let found = self.peek() == token;
        if found {
            self.take();
        }
        found
    }

    fn expect(&mut self, sign: &'static str, why: &str) -> Result<Span, Flaw> {
        let span = self.span();
        if self.take_if(&Token::Sign(sign)) {
            return Ok(span);
        }
        Err(Flaw::new(span, format!("expected `{sign}` {why}, not {}", self.peek().describe())))
    }

    /// Whatever nests passes here, so that no equation can exhaust the stack.
    fn deeper(&mut self, parse: impl FnOnce(&mut Self) -> Parsed) -> Parsed {
        if self.depth == MAX_DEPTH {
            let message = format!("the equation is nested deeper than {MAX_DEPTH} levels");
            return Err(Flaw::new(self.span(), message).hint("split it into several indicators"));
        }
        self.depth += 1;
        let node = parse(self);
        self.depth -= 1;
        node
    }

    fn any(&mut self) -> Parsed {
        self.deeper(|parser| parser.chain(&[(Token::Or, Sign::Or)], Self::all))
    }

    fn all(&mut self) -> Parsed {
        self.chain(&[(Token::And, Sign::And)], Self::negation)
    }

    fn negation(&mut self) -> Parsed {
        let span = self.span();
        if !self.take_if(&Token::Not) {
            return self.comparison();
        }
        let inner = self.deeper(Self::negation)?;
        Ok(Node { span: span.to(inner.span), kind: NodeKind::Not(Box::new(inner)) })
    }

    fn comparison(&mut self) -> Parsed {
        let left = self.sum()?;
        let Some(sign) = self.comparison_sign() else { return Ok(left) };
        let (_, sign_span) = self.take();
        let right = self.sum()?;
        if self.comparison_sign().is_some() {
            return Err(Flaw::new(self.span(), "comparisons do not follow one another")
                .hint("write `a < b and b < c`"));
        }
        Ok(binary(sign, sign_span, left, right))
    }

    fn comparison_sign(&self) -> Option<Sign> {
        let Token::Sign(sign) = self.peek() else { return None };
        Some(match *sign {
            "==" => Sign::Equal,
            "!=" => Sign::NotEqual,
            "<" => Sign::Less,
            "<=" => Sign::LessOrEqual,
            ">" => Sign::Greater,
            ">=" => Sign::GreaterOrEqual,
            _ => return None,
        })
    }

    fn sum(&mut self) -> Parsed {
        self.chain(&[(Token::Sign("+"), Sign::Add), (Token::Sign("-"), Sign::Subtract)], Self::product)
    }

    fn product(&mut self) -> Parsed {
        self.chain(&[(Token::Sign("*"), Sign::Multiply), (Token::Sign("/"), Sign::Divide)], Self::signed)
    }

    /// `part sign part sign part …`, from the left.
    fn chain(&mut self, signs: &[(Token, Sign)], part: fn(&mut Self) -> Parsed) -> Parsed {
        let mut left = part(self)?;
        while let Some((_, sign)) = signs.iter().find(|(token, _)| token == self.peek()) {
            let (_, sign_span) = self.take();
            left = binary(*sign, sign_span, left, part(self)?);
        }
        Ok(left)
    }

    fn signed(&mut self) -> Parsed {
        let span = self.span();
        if !self.take_if(&Token::Sign("-")) {
            return self.atom();
        }
        let inner = self.deeper(Self::signed)?;
        Ok(Node { span: span.to(inner.span), kind: NodeKind::Negate(Box::new(inner)) })
    }

    fn atom(&mut self) -> Parsed {
        let (token, span) = self.take();
        match token {
            Token::Number(number) => Ok(Node { kind: NodeKind::Number(number), span }),
            Token::Time(micros) => Ok(Node { kind: NodeKind::Number(micros as f64 / 1e6), span }),
            Token::Sign("(") => {
                let inner = self.any()?;
                let close = self.expect(")", "to close the parenthesis")?;
                Ok(Node { kind: inner.kind, span: span.to(close) })
            }
            Token::Name(name) if self.peek() == &Token::Sign("(") => self.call(name, span),
            Token::Name(svid) => self.trace(svid, span),
            other => {
                let message = format!("expected a number, a function or a name, not {}", other.describe());
                Err(Flaw::new(span, message))
            }
        }
    }

    fn call(&mut self, name: String, name_span: Span) -> Parsed {
        self.take();
        let mut arguments = Vec::new();
        while self.peek() != &Token::Sign(")") {
            arguments.push(self.argument()?);
            if !self.take_if(&Token::Sign(",")) {
                break;
            }
        }
        let close = self.expect(")", &format!("to close {name}(…)"))?;
        Ok(Node { span: name_span.to(close), kind: NodeKind::Call { name, name_span, arguments } })
    }

    fn argument(&mut self) -> Parsed {
        let node = self.any()?;
        let here = self.span();
        if !self.take_if(&Token::Where) {
            return Ok(node);
        }
        let NodeKind::Trace(trace) = node.kind else {
            return Err(Flaw::new(here, "`where` chooses points of a trace, and there is none before it"));
        };
        let condition = self.any()?;
        if self.peek() == &Token::Where {
            return Err(
                Flaw::new(self.span(), "there is one `where` for a trace").hint("join them with `and`")
            );
        }
        let span = node.span.to(condition.span);
        let trace = Trace { condition: Some(Box::new(condition)), ..trace };
        Ok(Node { kind: NodeKind::Trace(trace), span })
    }

    fn trace(&mut self, svid: String, span: Span) -> Parsed {
        if !self.take_if(&Token::Sign("[")) {
            let trace = Trace { svid, window: None, condition: None };
            return Ok(Node { kind: NodeKind::Trace(trace), span });
        }
        let start = self.span();
        let from = self.bound()?;
        self.expect("..", "between the ends of the window")?;
        let to = self.bound()?;
        let end = self.span();
        let close = self.expect("]", "to close the window")?;
        if let (Some(from), Some(to)) = (from, to)
            && from > to
        {
            return Err(Flaw::new(start.to(end), "the window ends before it begins"));
        }
        let trace = Trace { svid, window: Some(Window { from, to }), condition: None };
        Ok(Node { kind: NodeKind::Trace(trace), span: span.to(close) })
    }

    fn bound(&mut self) -> Result<Option<i64>, Flaw> {
        let span = self.span();
        match *self.peek() {
            Token::Time(micros) => {
                self.take();
                Ok(Some(micros))
            }
            Token::Number(number) => {
                Err(Flaw::new(span, "a time needs its unit").hint(format!("write {number}s for seconds")))
            }
            Token::Sign("-") => Err(Flaw::new(span, "times count from the start of the context, from 0s on")),
            _ => Ok(None),
        }
    }
}

fn binary(sign: Sign, sign_span: Span, left: Node, right: Node) -> Node {
    let span = left.span.to(right.span);
    let kind = NodeKind::Binary { sign, sign_span, left: Box::new(left), right: Box::new(right) };
    Node { kind, span }
}
