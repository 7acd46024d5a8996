// Throws an exception, for the only injected bug that cannot be written in C.
extern "C" void base_throw(void);
extern "C" void base_throw(void) { throw 1; }
