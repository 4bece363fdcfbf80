// Audience: who may fetch a program. Viewer: somebody who asks for one. Plain values.
//
// A program is everybody's, or of some users and teams. Whoever sends its graph and has it tuned adds
// an audience and takes nobody's away, so a program's audience only grows.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace kiln {

struct Viewer {
  std::string user, team;  // empty: none
  bool sees_all = false;   // an operator
};

class Audience {
 public:
  Audience() = default;  // everybody
  static Audience of_user(std::string_view name);
  static Audience of_team(std::string_view name);

  bool is_all() const { return named_.empty(); }
  bool admits(const Viewer& viewer) const;
  bool covers(const Audience& other) const;  // whoever `other` admits
  void add(const Audience& other);

  // A line for each user (`user NAME`) and team (`team NAME`); empty: everybody. A line that is
  // neither admits nobody.
  std::string to_text() const;
  static Audience parse(std::string_view text);

  bool operator==(const Audience&) const = default;

 private:
  std::set<std::string> named_;  // lines
};

}  // namespace kiln
