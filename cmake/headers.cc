// Carries headers.h; see KilnTargets.cmake.
int main() {}
