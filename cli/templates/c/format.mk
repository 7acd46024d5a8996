# CC, CFLAGS and LDFLAGS can be set; CROSSDOCK is the command that `make test` runs.
CC ?= cc
CFLAGS ?= -O2 -g
CROSSDOCK ?= crossdock

LIBRARY := libcrossdock_@SNAKE@_plugin.so
STRICT := -std=c11 -Wall -Wextra -Werror

$(LIBRARY): plugin.c crossdock.h
	$(CC) $(STRICT) $(CFLAGS) -fPIC -fvisibility=hidden -shared $(LDFLAGS) -I . -o $@ plugin.c

test: $(LIBRARY)
	printf 'one\ntwo\nthree' > test.@NAME@
	$(CROSSDOCK) convert --plugins ./$(LIBRARY) test.@NAME@ test.arrow --json | grep -F '"rows":3'

clean:
	rm -f $(LIBRARY) test.@NAME@ test.arrow

.PHONY: test clean
