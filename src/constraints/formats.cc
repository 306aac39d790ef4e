#include "constraints/formats.h"

#include <array>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace coppice::constraints {
namespace {

// RFC 3339. Days exist, leap years included; seconds are below 60, as no list of leap seconds is
// regular for long.
const std::string leap_year =
    "(\\d\\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)";
const std::string full_date =
    "(\\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|"
    "02-(0[1-9]|1\\d|2[0-8]))|" +
    leap_year + "-02-29)";
const std::string full_time =
    "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d+)?([Zz]|[+-]([01]\\d|2[0-3]):[0-5]\\d)";
// ISO 8601, as RFC 3339's appendix A writes it.
const std::string time_part = "T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|\\d+S)";
const std::string duration =
    "P(\\d+W|(\\d+Y(\\d+M(\\d+D)?)?|\\d+M(\\d+D)?|\\d+D)(" + time_part + ")?|" + time_part + ")";
const std::string label = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
const std::string hostname = "(?=.{1,253}$)" + label + "(\\." + label + ")*";
const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
const std::string email =
    "(?=[^@]{1,64}@)" + atom + "(\\." + atom + ")*@" + label + "(\\." + label + ")*";
const std::string octet = "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
const std::string ipv4 = octet + "(\\." + octet + "){3}";

std::string ipv6_pattern() {
  const std::string h = "[0-9A-Fa-f]{1,4}", last = "(" + h + ":" + h + "|" + ipv4 + ")";
  std::string all = "((" + h + ":){6}" + last + "|::(" + h + ":){5}" + last;
  // h groups before "::", so many at most before the last ones.
  for (int before = 0; before <= 4; ++before) {
    const std::string front =
        before == 0 ? "(" + h + ")?" : "((" + h + ":){0," + std::to_string(before) + "}" + h + ")?";
    const int behind = 4 - before;
    all += "|" + front + "::(" + h + ":){" + std::to_string(behind) + "}" + last;
  }
  all += "|((" + h + ":){0,5}" + h + ")?::" + h + "|((" + h + ":){0,6}" + h + ")?::)";
  return all;
}

const std::string pchar = "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
const std::string authority = "(([A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?(\\[" +
                              ipv6_pattern() +
                              "\\]|([A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(:\\d*)?";
const std::string query = "(\\?(" + pchar + "|[/?])*)?(#(" + pchar + "|[/?])*)?";
const std::string uri = "[A-Za-z][A-Za-z0-9+.-]*:(//" + authority + "(/" + pchar + "*)*|/(" +
                        pchar + "+(/" + pchar + "*)*)?|" + pchar + "+(/" + pchar + "*)*)?" + query;
const std::string relative = "(//" + authority + "(/" + pchar + "*)*|/(" + pchar + "+(/" + pchar +
                             "*)*)?|([A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})+(/" + pchar +
                             "*)*)?" + query;

const std::array<std::pair<std::string_view, std::string>, 15> patterns = {
    {{"date", full_date},
     {"time", full_time},
     {"date-time", full_date + "[Tt]" + full_time},
     {"duration", duration},
     {"hostname", hostname},
     {"email", email},
     {"idn-email", "(?=[^@]{1,64}@)[^@\\s]+@" + label + "(\\." + label + ")*"},
     {"ipv4", ipv4},
     {"ipv6", ipv6_pattern()},
     {"uuid", "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"},
     {"uri", uri},
     {"iri", uri},  // those that are URIs
     {"uri-reference", "(" + uri + "|" + relative + ")"},
     {"json-pointer", "(/([^~/]|~[01])*)*"},
     {"relative-json-pointer", "(0|[1-9]\\d*)(#|(/([^~/]|~[01])*)*)"}}};

}  // namespace

std::string format_pattern(const std::string& format, const std::string& where) {
  for (const auto& [name, pattern] : patterns) {
    if (format == name) return "^" + pattern + "$";
  }
  if (format == "iri-reference") return "^(" + uri + "|" + relative + ")$";
  for (const char* standard : {"idn-hostname", "uri-template", "regex"}) {
    if (format == standard) {
      throw_usage(
          cat(where, ": ", quote(format), " is not supported; remove it, or use \"pattern\""));
    }
  }
  return {};
}

}  // namespace coppice::constraints
