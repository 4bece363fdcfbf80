#include "compiler_core/page/query.h"

#include <gtest/gtest.h>

#include "compiler_core/page/blocks.h"
#include "compiler_core/page/values.h"

namespace kiln::page {
namespace {

TEST(Query, ReadsAndWritesWhatAnAddressSays) {
  const Query query = Query::parse("filter=a%20%3Cb%3E+c&first=50&x=%zz&format=json");
  EXPECT_EQ(query.filter(), "a <b> c");
  EXPECT_EQ(query.first(), 50u);
  EXPECT_EQ(query.limit(), 50u);
  EXPECT_TRUE(query.wants_json());
  EXPECT_EQ(query.get("x"), "%zz");
  EXPECT_EQ(Query::parse(query.to_string().substr(1)).filter(), "a <b> c");
  EXPECT_EQ(Query::parse("limit=999999").limit(), 250u);
  EXPECT_EQ(Query::parse("first=-1&limit=0").first(), 0u);
  EXPECT_EQ(Query().to_string(), "");
}

TEST(Query, PagesAndFiltersALongList) {
  Table table{"t", "T", {{"name", "Name"}}};
  for (int i = 0; i < 120; ++i) table.rows.push_back({text("Worker " + std::to_string(i))});
  Table second = table;
  page_rows(second, Query::parse("first=100"), "name");
  EXPECT_EQ(second.rows.size(), 20u);
  EXPECT_EQ(second.rows[0][0].text, "Worker 100");
  EXPECT_EQ(second.paging->total, 120u);
  page_rows(table, Query::parse("filter=worker%2011"), "name");
  EXPECT_EQ(table.rows.size(), 11u) << "11 and 110 to 119";
  const std::string html =
      write_blocks({"", "T", "", {second}}, {"/t", Query::parse("first=100")}).take();
  EXPECT_NE(html.find("101 to 120 of 120"), std::string::npos);
  EXPECT_NE(html.find("href=\"/t?first=50\">Previous"), std::string::npos) << html;
  EXPECT_EQ(html.find(">Next<"), std::string::npos);
}

}  // namespace
}  // namespace kiln::page
