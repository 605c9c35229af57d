//! Checks the types of a tree and turns it into a program.
//!
//! What several functions ask of the same points of the same trace is put together, so that each choice of points is
//! made, and read, once.

use super::error::Flaw;
use super::function::{Function, Scalar, nearest};
use super::tree::{Node, NodeKind, Sign, Trace, Window};

/// A step of a program that works on a stack of numbers. Truth is 1 or 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    Number(f64),
    /// In the equation: the result of this request. In a condition: the last value of this SVID.
    Load(usize),
    Negate,
    Not,
    Scalar(Scalar),
    Binary(Sign),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Program {
    pub(super) svids: Vec<String>,
    pub(super) choices: Vec<Choice>,
    pub(super) requests: Vec<Request>,
    pub(super) steps: Vec<Step>,
}

/// Points of a trace.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Choice {
    /// Which of the program's SVIDs.
    pub(super) svid: usize,
    pub(super) window: Window,
    /// Empty: no condition.
    pub(super) condition: Vec<Step>,
}

/// A function over a choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Request {
    pub(super) choice: usize,
    pub(super) function: Function,
    /// Of `quantile`.
    pub(super) q: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Number,
    Truth,
}

pub(super) fn compile(node: &Node) -> Result<Program, Flaw> {
    let mut program = Program::default();
    let mut steps = Vec::new();
    program.value(node, &mut steps)?;
    program.steps = steps;
    Ok(program)
}

/// The position of an item, which is put there first where it is new.
fn intern<T: PartialEq>(items: &mut Vec<T>, item: T) -> usize {
    items.iter().position(|known| *known == item).unwrap_or_else(|| {
        items.push(item);
        items.len() - 1
    })
}

impl Program {
    fn value(&mut self, node: &Node, steps: &mut Vec<Step>) -> Result<Type, Flaw> {
        match &node.kind {
            NodeKind::Trace(trace) => {
                Err(Flaw::new(node.span, format!("`{}` is a trace, and a number is needed here", trace.svid))
                    .hint(format!("write for example mean({})", trace.svid)))
            }
            NodeKind::Call { name, arguments, .. } => match function(name) {
                Some(function) => self.request(function, node, arguments, steps),
                None => self.scalar(node, steps, Self::value),
            },
            _ => self.arithmetic(node, steps, Self::value),
        }
    }

    /// Inside `where`: a trace stands for its last value, and functions over traces are not to be had.
    fn condition(&mut self, node: &Node, steps: &mut Vec<Step>) -> Result<Type, Flaw> {
        match &node.kind {
            NodeKind::Trace(Trace { svid, window: None, condition: None }) => {
                steps.push(Step::Load(intern(&mut self.svids, svid.clone())));
                Ok(Type::Number)
            }
            NodeKind::Trace(_) => {
                Err(Flaw::new(node.span, "in a condition a trace is its last value, so it has no window"))
            }
            NodeKind::Call { name, .. } if function(name).is_some() => {
                Err(Flaw::new(node.span, format!("{name} looks at a whole trace, a condition at one moment"))
                    .hint("compare with a number"))
            }
            NodeKind::Call { .. } => self.scalar(node, steps, Self::condition),
            _ => self.arithmetic(node, steps, Self::condition),
        }
    }

    fn arithmetic(&mut self, node: &Node, steps: &mut Vec<Step>, visit: Visit) -> Result<Type, Flaw> {
        match &node.kind {
            NodeKind::Number(number) => {
                steps.push(Step::Number(*number));
                Ok(Type::Number)
            }
            NodeKind::Negate(inner) => {
                self.expect(inner, Type::Number, steps, visit)?;
                steps.push(Step::Negate);
                Ok(Type::Number)
            }
            NodeKind::Not(inner) => {
                self.expect(inner, Type::Truth, steps, visit)?;
                steps.push(Step::Not);
                Ok(Type::Truth)
            }
            NodeKind::Binary { sign, sign_span, left, right } => {
                let wanted = if sign.is_logical() { Type::Truth } else { Type::Number };
                self.expect(left, wanted, steps, visit)?;
                self.expect(right, wanted, steps, visit)?;
                if *sign == Sign::Divide && matches!(right.kind, NodeKind::Number(0.0)) {
                    return Err(Flaw::new(sign_span.to(right.span), "this divides by zero"));
                }
                steps.push(Step::Binary(*sign));
                let truth = sign.is_logical() || sign.is_comparison();
                Ok(if truth { Type::Truth } else { Type::Number })
            }
            NodeKind::Trace(_) | NodeKind::Call { .. } => visit(self, node, steps),
        }
    }

    fn expect(&mut self, node: &Node, wanted: Type, steps: &mut Vec<Step>, visit: Visit) -> Result<(), Flaw> {
        let found = visit(self, node, steps)?;
        match (wanted, found) {
            (Type::Number, Type::Truth) => {
                Err(Flaw::new(node.span, "this is true or false, and a number is needed here"))
            }
            (Type::Truth, Type::Number) => {
                Err(Flaw::new(node.span, "this is a number, and a comparison is needed here")
                    .hint("write for example STEP == 3"))
            }
            _ => Ok(()),
        }
    }

    fn scalar(&mut self, node: &Node, steps: &mut Vec<Step>, visit: Visit) -> Result<Type, Flaw> {
        let NodeKind::Call { name, name_span, arguments } = &node.kind else {
            return visit(self, node, steps);
        };
        let Some(scalar) = Scalar::ALL.into_iter().find(|scalar| scalar.name() == name) else {
            let flaw = Flaw::new(*name_span, format!("unknown function `{name}`"));
            return Err(match nearest(name) {
                Some(near) => flaw.hint(format!("did you mean `{near}`?")),
                None => flaw.hint(format!("functions are {}", names())),
            });
        };
        let [argument] = arguments.as_slice() else {
            let message = format!("{name} takes 1 argument, not {}", arguments.len());
            return Err(Flaw::new(node.span, message));
        };
        self.expect(argument, Type::Number, steps, visit)?;
        steps.push(Step::Scalar(scalar));
        Ok(Type::Number)
    }

    fn request(
        &mut self,
        function: Function,
        node: &Node,
        arguments: &[Node],
        steps: &mut Vec<Step>,
    ) -> Result<Type, Flaw> {
        let (trace, q) = match (function, arguments) {
            (Function::Quantile, [trace, q]) => (trace, share(q)?),
            (Function::Quantile, _) => {
                let message = format!("quantile takes 2 arguments, not {}", arguments.len());
                return Err(Flaw::new(node.span, message).hint("write for example quantile(TEMP, 0.95)"));
            }
            (_, [trace]) => (trace, 0.0),
            _ => {
                let message = format!("{} takes 1 argument, not {}", function.name(), arguments.len());
                return Err(Flaw::new(node.span, message));
            }
        };
        let NodeKind::Trace(Trace { svid, window, condition }) = &trace.kind else {
            let message = format!("{} takes a trace, and this is a calculation", function.name());
            return Err(Flaw::new(trace.span, message).hint("calculate with results: mean(A) - mean(B)"));
        };
        let svid = intern(&mut self.svids, svid.clone());
        let mut tests = Vec::new();
        if let Some(condition) = condition {
            self.expect(condition, Type::Truth, &mut tests, Self::condition)?;
        }
        let choice = Choice { svid, window: window.unwrap_or_default(), condition: tests };
        let choice = intern(&mut self.choices, choice);
        steps.push(Step::Load(intern(&mut self.requests, Request { choice, function, q })));
        Ok(Type::Number)
    }
}

type Visit = fn(&mut Program, &Node, &mut Vec<Step>) -> Result<Type, Flaw>;

fn function(name: &str) -> Option<Function> {
    Function::ALL.into_iter().find(|function| function.name() == name)
}

fn names() -> String {
    let functions = Function::ALL.iter().map(|function| function.name());
    functions.chain(Scalar::ALL.iter().map(|scalar| scalar.name())).collect::<Vec<_>>().join(", ")
}

fn share(node: &Node) -> Result<f64, Flaw> {
    match node.kind {
        NodeKind::Number(q) if (0.0..=1.0).contains(&q) => Ok(q),
        _ => {
            let flaw = Flaw::new(node.span, "the second argument of quantile is a number from 0 to 1");
            Err(flaw.hint("the median is 0.5"))
        }
    }
}

/// Runs steps on a stack that is left as it was found; `load` gives what [`Step::Load`] asks for.
pub(super) fn run<E>(
    steps: &[Step],
    stack: &mut Vec<f64>,
    load: impl Fn(usize) -> Result<f64, E>,
) -> Result<f64, E> {
    stack.clear();
    for step in steps {
        let mut pop = || stack.pop().unwrap_or(f64::NAN);
        let value = match *step {
            Step::Number(number) => number,
            Step::Load(index) => load(index)?,
            Step::Negate => -pop(),
            Step::Not => 1.0 - pop(),
            Step::Scalar(scalar) => scalar.apply(pop()),
            Step::Binary(sign) => {
                let right = pop();
                sign.apply(pop(), right)
            }
        };
        stack.push(value);
    }
    Ok(stack.pop().unwrap_or(f64::NAN))
}
