// Tokens to a syntax tree: Jinja's grammar, without inheritance and imports.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "chat/lexer.h"
#include "chat/syntax.h"

namespace coppice::chat {

/// Throws TemplateError, which begins with the line, also for nesting beyond 150 levels.
class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(lex(source)) {}
  Block parse();

 private:
  friend class Nesting;

  // Tokens.
  const Token& token(std::size_t ahead = 0) const;
  bool is(Token::Kind kind) const { return token().kind == kind; }
  bool is_symbol(std::string_view symbol) const;
  bool is_name(std::string_view name, std::size_t ahead = 0) const;
  bool skip_symbol(std::string_view symbol);
  bool skip_name(std::string_view name);
  void expect_symbol(std::string_view symbol);
  void expect(Token::Kind kind, const char* what);
  std::string expect_name(const char* what);
  [[noreturn]] void fail(const std::string& what) const;

  // Statements (parser.cc).
  Block block(std::initializer_list<std::string_view> ends);
  std::unique_ptr<Statement> statement();
  std::unique_ptr<Statement> conditional();
  std::unique_ptr<Statement> loop();
  std::unique_ptr<Statement> assignment();
  std::unique_ptr<Statement> macro();
  std::unique_ptr<Statement> call();
  std::unique_ptr<Statement> filter();
  std::unique_ptr<Statement> with();
  std::unique_ptr<Statement> make(Statement::Kind kind) const;
  void signature(Macro& macro);
  void macro_body(Macro& macro, std::string_view end);
  /// The body of a tag that `end` closes, from behind its block's begin.
  Block body_until(std::string_view end);
  void end_block() { expect(Token::Kind::block_end, "the end of the tag"); }

  // Expressions (parse_expression.cc).
  ExpressionPtr expression(bool conditionals = true);
  ExpressionPtr joined(std::initializer_list<std::string_view> joints, Expression::Kind kind,
                       ExpressionPtr (Parser::*operand)());
  ExpressionPtr either();
  ExpressionPtr both();
  ExpressionPtr inverted();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr filtered() { return unary(true); }
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr primary();
  ExpressionPtr postfix(ExpressionPtr node);
  ExpressionPtr filters(ExpressionPtr node);
  ExpressionPtr subscript(ExpressionPtr node);
  ExpressionPtr test(ExpressionPtr node);
  ExpressionPtr one_filter(ExpressionPtr node);
  ExpressionPtr dict();
  /// Makes `part`, which may be null, or arguments the node's own, if that is not too deep a tree.
  void adopt(Expression& node, ExpressionPtr part) const;
  void adopt(Expression& node, std::vector<Argument> list) const;
  /// One expression, or a tuple of several without brackets.
  ExpressionPtr tuple(bool conditionals, bool bracketed = false);
  ExpressionPtr target();
  std::vector<Argument> arguments();
  bool tuple_ends() const;
  std::unique_ptr<Expression> make(Expression::Kind kind) const;

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;  ///< that enclose the current statement
};

/// Counts levels of recursion while it lives.
class Nesting {
 public:
  explicit Nesting(Parser& parser);
  ~Nesting() { --parser_.nesting_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  Parser& parser_;
};

}  // namespace coppice::chat
