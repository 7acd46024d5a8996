/* Usage: cases PLUGINS SAMPLE FOLDER [CASE...]. Runs the given cases, or all cases. Prints the
   name of each case that succeeded. */
#include "cases.h"

const char *plugins, *sample, *folder;

static const struct test_case* const lists[] = {host_cases, session_cases, read_cases,    scan_cases, parts_cases,
                                                uri_cases,  write_cases,   convert_cases, lifetime_cases};

static int run(const char* name) {
  int n = 0;
  for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
    for (const struct test_case* c = lists[i]; c->name; c++)
      if (!name || strcmp(c->name, name) == 0) {
        fprintf(stderr, "%s ...\n", c->name);
        c->run();
        printf("%s\n", c->name);
        n++;
      }
  return n;
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  plugins = argv[1];
  sample = argv[2];
  folder = argv[3];
  if (argc == 4) return run(NULL) > 0 ? 0 : 1;
  for (int i = 4; i < argc; i++)
    if (run(argv[i]) != 1) {
      fprintf(stderr, "there is no case %s\n", argv[i]);
      return 2;
    }
  return 0;
}
