//! Numbers and comparisons: `tcp[tcpflags] & (tcp-syn | tcp-ack) != 0`.

use std::ops::Range;

use super::{MAX_DEPTH, Parsed, Parser};
use crate::arith::{Arith, Compare, Header, Operator, Relation, Size, named, start};
use crate::display::is_link;
use crate::error::Why;
use crate::lexer::Kind;
use crate::primitive::{Primitive, Protocol};
use crate::{value, words};

/// A number and how high it is built.
struct Built {
    number: Arith,
    height: usize,
}

impl Built {
    fn leaf(number: Arith) -> Self {
        Self { number, height: 0 }
    }
}

/// What is wrong, and where.
type Failure = (Range<usize>, Why);

/// How tightly an operator binds; 0 for those that take all that follows, as libpcap's grammar gives
/// `%` and `^` no rank.
fn rank(operator: Operator) -> u8 {
    match operator {
        Operator::Modulo | Operator::Xor => 0,
        Operator::Or => 1,
        Operator::And => 2,
        Operator::ShiftLeft | Operator::ShiftRight => 3,
        Operator::Add | Operator::Subtract => 4,
        Operator::Multiply | Operator::Divide => 5,
    }
}

/// Above all of them.
const UNARY: u8 = 6;

impl<'a> Parser<'a> {
    /// A comparison of numbers, if one begins here.
    pub(super) fn relation(&mut self) -> Option<Parsed> {
        let certain = match self.peek()? {
            Kind::Operator(Operator::Subtract) => true,
            Kind::Word("len" | "length") => true,
            Kind::Word(word) if named(word).is_some() => true,
            Kind::Word(word) if value::number(word).is_some() => match self.peek_after(1)? {
                Kind::Compare(_) | Kind::Operator(_) | Kind::Slash => true,
                _ => return None,
            },
            Kind::Word(_) if self.peek_after(1) == Some(Kind::OpenSquare) => true,
            // Of numbers or of terms: what it is shows further on.
            Kind::Open => false,
            _ => return None,
        };
        let (before, from) = (self.at, self.here().start);
        match self.comparison() {
            Ok(relation) => {
                let span = self.since(from);
                Some(Parsed::leaf(self.made(Primitive::Relation(relation), span), None))
            }
            Err(_) if !certain => {
                self.at = before;
                None
            }
            Err((span, why)) => {
                self.error(span, why);
                self.pass_over();
                Some(Parsed::leaf(crate::Expr::False, None))
            }
        }
    }

    /// To where another term may begin: one error for a number is enough.
    fn pass_over(&mut self) {
        while let Some(kind) = self.peek()
            && !matches!(kind, Kind::And | Kind::Or | Kind::Close)
        {
            self.skip();
        }
    }

    fn comparison(&mut self) -> Result<Relation, Failure> {
        let left = self.number(0, 0)?.number;
        let Some(Kind::Compare(compare)) = self.peek() else {
            let instead = "a comparison, as in `tcp[13] & 2 != 0` or `len > 100`";
            return Err((self.here(), Why::NoValue { instead }));
        };
        self.skip();
        let right = self.number(0, 0)?.number;
        Ok(Relation { left, compare, right })
    }

    /// A number of operators that bind at least as tightly as `least`.
    fn number(&mut self, least: u8, depth: usize) -> Result<Built, Failure> {
        let mut left = self.operand(depth)?;
        loop {
            let operator = match self.peek() {
                Some(Kind::Operator(operator)) => operator,
                Some(Kind::Slash) => Operator::Divide,
                _ => return Ok(left),
            };
            let rank = rank(operator);
            if rank > 0 && rank < least {
                return Ok(left);
            }
            self.skip();
            let span = self.here();
            let next = if rank == 0 { 0 } else { rank.saturating_add(1) };
            let right = self.number(next, depth.saturating_add(1))?;
            sound(operator, &right.number).map_err(|why| (span, why))?;
            let height = left.height.max(right.height).saturating_add(1);
            if height > MAX_DEPTH {
                return Err((self.here(), Why::TooDeep));
            }
            let (l, r) = (Box::new(left.number), Box::new(right.number));
            left = Built { number: Arith::Binary { operator, left: l, right: r }, height };
        }
    }

    fn operand(&mut self, depth: usize) -> Result<Built, Failure> {
        if depth > MAX_DEPTH {
            return Err((self.here(), Why::TooDeep));
        }
        let inner = depth.saturating_add(1);
        let span = self.here();
        match self.peek() {
            Some(Kind::Open) => {
                self.skip();
                let number = self.number(0, inner)?;
                self.expect(Kind::Close, Why::NotClosed, span)?;
                Ok(number)
            }
            Some(Kind::Operator(Operator::Subtract)) => {
                self.skip();
                let Built { number, height } = self.number(UNARY, inner)?;
                let height = height.saturating_add(1);
                if height > MAX_DEPTH {
                    return Err((span, Why::TooDeep));
                }
                Ok(Built { number: Arith::Negate(Box::new(number)), height })
            }
            Some(Kind::Word(word)) => {
                if let Some(number) = value::number(word).or_else(|| named(word)) {
                    self.skip();
                    return Ok(Built::leaf(Arith::Number(number)));
                }
                if matches!(word, "len" | "length") {
                    self.skip();
                    return Ok(Built::leaf(Arith::Len));
                }
                self.load(word, inner)
            }
            _ => Err((span, missing())),
        }
    }

    /// `header[at]`, `header[at:size]`.
    fn load(&mut self, word: &'a str, depth: usize) -> Result<Built, Failure> {
        let span = self.here();
        if self.peek_after(1) != Some(Kind::OpenSquare) {
            let strange = words::is_strange(word);
            let unknown = || Why::UnknownWord { word: word.to_owned(), nearest: None };
            return Err((span, if strange { unknown() } else { missing() }));
        }
        let protocol = Protocol::WORDS.iter().find(|(w, _)| *w == word).map(|(_, p)| *p);
        let header = match protocol {
            _ if is_link(word) => Header::Ether,
            Some(protocol) if start(protocol).is_some() => Header::Protocol(protocol),
            None if words::is_strange(word) => {
                return Err((span, Why::UnknownWord { word: word.to_owned(), nearest: None }));
            }
            _ => {
                let wanted = "a protocol whose bytes can be looked at";
                let instead = "`ether`, `ip`, `ip6`, `tcp`, `udp` or `icmp`, as in `ip[9] = 6`";
                return Err((span, Why::Value { value: word.to_owned(), wanted, instead }));
            }
        };
        self.skip();
        let open = self.here();
        self.skip();
        let Built { number: at, height } = self.number(0, depth)?;
        let mut size = Size::One;
        if self.peek() == Some(Kind::Colon) {
            self.skip();
            let here = self.here();
            let word = match self.peek() {
                Some(Kind::Word(word)) => word,
                _ => "",
            };
            size = match value::number(word) {
                Some(1) => Size::One,
                Some(2) => Size::Two,
                Some(4) => Size::Four,
                _ => {
                    let (wanted, instead) = ("a number of bytes", "1, 2 or 4, as in `ip[2:2]`");
                    return Err((here, Why::Value { value: word.to_owned(), wanted, instead }));
                }
            };
            self.skip();
        }
        self.expect(Kind::CloseSquare, Why::SquareNotClosed, open)?;
        let height = height.saturating_add(1);
        if height > MAX_DEPTH {
            return Err((span, Why::TooDeep));
        }
        Ok(Built { number: Arith::Load { header, at: Box::new(at), size }, height })
    }

    fn expect(&mut self, kind: Kind<'a>, why: Why, open: Range<usize>) -> Result<(), Failure> {
        if self.peek() != Some(kind) {
            return Err((open, why));
        }
        self.skip();
        Ok(())
    }

    /// `== N`, `< N` and the like behind a tag or `ingress`.
    pub(super) fn compare(&mut self) -> Option<Compare> {
        let Some(Kind::Compare(compare)) = self.peek() else {
            return None;
        };
        self.skip();
        Some(compare)
    }
}

fn missing() -> Why {
    Why::NoValue { instead: "a number, `len` or bytes, as in `tcp[13] & 2 != 0`" }
}

/// Refuses what libpcap refuses: constants that no packet can save.
fn sound(operator: Operator, right: &Arith) -> Result<(), Why> {
    let (bad, wanted, instead) = match (operator, right) {
        (Operator::Divide | Operator::Modulo, Arith::Number(n)) => {
            (*n == 0, "a number to divide by", "one that is not 0")
        }
        (Operator::ShiftLeft | Operator::ShiftRight, Arith::Number(n)) => {
            (*n > 31, "a number of bits to shift by", "one from 0 to 31")
        }
        _ => return Ok(()),
    };
    if bad { Err(Why::Value { value: right.to_string(), wanted, instead }) } else { Ok(()) }
}
